// Reports crashes to the controller, and protects plugfest from signals of the plugin.
#pragma once

#include <csignal>
#include <cstdint>

namespace plugfest::rank {

/// Installs a handler of SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT that sends a `Crash` on `control_fd` and never
/// returns. The controller reads the stack of the thread and kills the process.
void report_crashes(int control_fd);

/// A signal that the kernel did not deliver. `target`: as the first argument of kill(2). `signal` 0: none.
struct RefusedSignal {
  std::int32_t target = 0;
  std::int32_t signal = 0;
};

/// Makes the kernel refuse, with SIGSYS, signals of this process and of its descendants to
///  - all processes (kill(-1, …)),
///  - the ancestors of this process and their process groups: plugfest and its ancestors,
///  - processes with an id below 300 that are older than this one, such as the keeper of a background fabric,
/// and SIGKILL and SIGSTOP to this process itself. Call it while the process has one thread. Without effect on kernels
/// without seccomp filters.
///
/// It protects from mistakes, not from malice: a plugin can send a signal to a single thread of plugfest.
void refuse_signals_to_plugfest();

/// Returns the refused signal, for a handler of SIGSYS. Async-signal-safe.
RefusedSignal refused_signal(const siginfo_t& info, const void* context);

}  // namespace plugfest::rank
