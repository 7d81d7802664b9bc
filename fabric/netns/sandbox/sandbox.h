// The namespaces that a whole run happens in, so that its end, however it comes, removes everything that it made.
#pragma once

#include <optional>

#include "fabric/system/descriptor.h"

namespace plugfest::netns {

/// Splits the calling process in two: the rest of the program runs inside new namespaces, the process that was started
/// stays outside and waits for it. Call it first thing in main:
///
///     if (std::optional<int> exit_code = netns::enter_sandbox()) return *exit_code;
///
/// Inside it returns nothing, and the caller has mount, network and process namespaces of its own with every capability
/// over them, a /proc that shows them, a loopback interface that is up. Who lacks CAP_SYS_ADMIN (an ordinary user, root
/// of a container) also gets a user namespace in which he is root. A second call, inside, makes a sandbox inside the
/// sandbox.
///
/// Outside it returns when the program inside has ended: with its exit code, or 128 plus the number of the signal that
/// killed it. Signals sent to the outside process are passed on; so one sent to the whole process group arrives twice.
///
/// The program inside is an ordinary process: a small process 1 of ours stands above it and reaps orphans. SIGKILL of
/// any of the three ends all processes inside, and with them the kernel removes the namespaces, interfaces and mounts.
/// Where no /proc can be mounted (some containers) there are neither process namespace nor process 1, and what
/// processes inside have started themselves outlives a SIGKILL.
///
/// Errors: NamespacesForbidden (barred.h), which says what bars the namespaces on this machine and what to do about it.
/// Thread safety: to be called while the process has one thread; more are an error.
std::optional<int> enter_sandbox();

/// The namespaces of a sandbox, held so that another process may join them.
struct SandboxNamespaces {
  Descriptor user;
  Descriptor processes;
  Descriptor network;
  Descriptor mounts;
};

/// Those that the caller is in. Errors: std::runtime_error.
SandboxNamespaces current_sandbox();

/// As enter_sandbox(), but the program goes on inside the sandbox of another process of the same user, which it got the
/// descriptors from. When that sandbox ends, so does the program. Errors: std::runtime_error. Thread safety: as
/// enter_sandbox().
std::optional<int> join_sandbox(const SandboxNamespaces& sandbox);

}  // namespace plugfest::netns
