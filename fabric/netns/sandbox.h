// Namespaces for a whole run: when the run ends, the kernel removes everything that the run created.
#pragma once

#include <optional>

#include "fabric/system/file.h"

namespace plugfest::netns {

/// Forks the calling process: the child continues inside new namespaces, the parent stays outside and waits for it.
/// Call it at the start of main:
///
///     if (std::optional<int> exit_code = netns::enter_sandbox()) return *exit_code;
///
/// Inside, the function returns nullopt. The caller has its own mount, network and process namespaces with all
/// capabilities, a /proc that shows them, and a loopback interface that is up. A caller without CAP_SYS_ADMIN (an
/// ordinary user, root of a container) also gets a user namespace in which it is root. A second call inside creates a
/// nested sandbox.
///
/// Outside, the function returns after the program inside has exited: its exit code, or 128 plus the number of the
/// signal that killed it. The outside process forwards the signals that it receives; a signal sent to the whole process
/// group therefore arrives twice.
///
/// The program inside is not process 1 of the process namespace: process 1 is a small process that reaps orphans.
/// SIGKILL of any of the three processes ends all processes inside; the kernel then removes the namespaces, interfaces
/// and mounts. Where no /proc can be mounted (some containers), the sandbox has no process namespace;
/// contain_processes() then describes the end of the processes inside.
///
/// Errors: NamespacesForbidden (namespace_restriction.h) with the cause and the remedy; std::runtime_error if the
/// process has more than one thread.
std::optional<int> enter_sandbox();

/// Forks the calling process like enter_sandbox(), but creates no namespaces: for machines that forbid them and for
/// sandboxes that persist. Every process that the program has started, and every process that those have started, ends
/// with the program.
///
/// A process between the outside process and the program does the work of process 1. SIGKILL of any of the three ends
/// all processes; SIGKILL of all three leaves those that have left the process group of their parent.
std::optional<int> contain_processes();

/// The namespaces of a sandbox, for another process to join.
struct SandboxNamespaces {
  Descriptor user;
  Descriptor processes;
  Descriptor network;
  Descriptor mounts;
};

/// The namespaces of the caller. Errors: std::runtime_error.
SandboxNamespaces current_sandbox();

/// Forks the calling process like enter_sandbox(), but the child continues inside the existing sandbox of another
/// process of the same user. When that sandbox ends, the program is killed. Errors: std::runtime_error, for
/// example if the process has more than one thread.
std::optional<int> join_sandbox(const SandboxNamespaces& sandbox);

}  // namespace plugfest::netns
