// Reports crashes to the controller, and protects plugfest from the plugin.
#pragma once

#include <csignal>
#include <cstdint>

namespace plugfest::rank {

/// Installs a handler of SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT that sends a `Crash` on `control_fd` and never
/// returns. The controller reads the stack of the thread and kills the process.
void report_crashes(int control_fd);

/// A system call that the kernel refused; see wire::Crash.
struct RefusedCall {
  std::int32_t number = 0;
  std::int32_t target = 0;
  std::int32_t action = 0;
};

/// Makes the kernel refuse, with SIGSYS, reboot(), and that this process and its descendants send signals to, trace,
/// write to, limit or make owners of a descriptor's signals (F_SETOWN):
///  - all processes (kill(-1, …)),
///  - the ancestors of this process and their process groups: plugfest and its ancestors,
///  - processes with an id below 300 that are older than this one, such as the keeper of a background fabric,
/// and SIGKILL and SIGSTOP to this process itself. Call it while the process has one thread. Without effect on kernels
/// without seccomp filters.
///
/// It protects from mistakes, not from malice: a plugin can send a signal to a single thread of plugfest.
void protect_plugfest();

/// Returns the refused call, for a handler of SIGSYS; number 0: none. Async-signal-safe.
RefusedCall refused_call(const siginfo_t& info, const void* context);

}  // namespace plugfest::rank
