// Runs one command in a virtual machine with its own kernel and this machine's files.
#pragma once

#include <map>
#include <string>

#include "fabric/guest/kernel.h"
#include "fabric/guest/protocol.h"

namespace plugfest::guest {

/// The modules that every guest needs. Callers add their own.
ModuleNames boot_modules();

struct Outcome {
  int exit_code = 0;  ///< the command's exit code, or 128 plus the number of the signal that killed it
  /// The content of each file of CommandLine::results that the command wrote, by path.
  std::map<std::string, std::string> results;
};

/// Boots the guest, runs the command as root, and powers off. The command's output goes to this process's standard
/// output and standard error without delay.
///
/// The guest can read the files that the caller can read. Its writes stay in its memory and are lost at the end, except
/// for the results. SIGINT, SIGTERM and SIGHUP are forwarded to the command; before the command has started they end
/// the guest. When this process exits, even after SIGKILL, the guest ends and leaves nothing behind.
///
/// Uses KVM if a guest reports within two seconds that it has started, else emulation.
///
/// Needs QEMU. Errors: std::runtime_error if QEMU is missing or fails, the guest does not boot (with the end of its
/// console output), or the command cannot be started. Thread safety: call it while the process has one thread.
Outcome run_in_guest(const Kernel& kernel, const CommandLine& command);

}  // namespace plugfest::guest
