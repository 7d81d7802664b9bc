// Runs one command in a virtual machine that has a kernel of its own and this machine's files.
#pragma once

#include <map>
#include <string>

#include "fabric/guest/command_line.h"
#include "fabric/guest/kernel.h"

namespace plugfest::guest {

/// Modules that every guest needs; callers add theirs.
ModuleNames boot_modules();

struct Outcome {
  int exit_code = 0;  ///< the command's, or 128 plus a signal's number
  /// Files among CommandLine::results that the command wrote, by the path that was asked for.
  std::map<std::string, std::string> results;
};

/// Boots, runs the command as root, and powers off. What the command prints goes to this process's standard output and
/// standard error as it comes.
///
/// The guest sees the caller's files as the caller may read them; what it writes lives in its memory and is gone
/// afterwards, except for the results. SIGINT, SIGTERM and SIGHUP are passed on to the command; before there is one
/// they end the guest. However this process ends, the guest ends with it and leaves nothing.
///
/// KVM is used where a guest says within two seconds that it has started, else plain emulation.
///
/// Needs QEMU. Errors: std::runtime_error: QEMU is missing or fails, the guest does not boot (with the end of its
/// console), the command cannot be started. Thread safety: to be called while the process has one thread.
Outcome run_in_guest(const Kernel& kernel, const CommandLine& command);

}  // namespace plugfest::guest
