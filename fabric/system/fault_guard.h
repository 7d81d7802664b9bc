// Accesses to memory of the program that the program may have unmapped since it registered it.
#pragma once

#include <atomic>
#include <csetjmp>
#include <cstddef>
#include <span>

namespace plugfest {

/// Makes the accesses of guarded() survive faults, by handlers of SIGSEGV and SIGBUS. They pass every other fault to
/// the handler that the program had installed before, or to the default action. A handler that the program installs
/// later replaces them: then a fault in guarded() goes to that handler. A fault on a thread that blocks the signal ends
/// the process. Calls after the first do nothing. Thread safety: any thread.
void install_fault_handlers();

/// The access of this thread that is guarded.
struct GuardedAccess {
  sigjmp_buf back;
  const std::byte* begin;
  const std::byte* end;
};

// The model "initial-exec" allocates the variable with the thread: a handler must not allocate memory.
[[gnu::tls_model("initial-exec")]] inline thread_local std::atomic<GuardedAccess*> guarded_access = nullptr;

// Whether the end of a fault must restore the signal mask, which needs a system call. The handlers block no signal, but
// TSan blocks all signals in each handler, so a second fault on the same thread would end the process.
#ifdef __SANITIZE_THREAD__
inline constexpr int kSavesSignalMask = 1;
#else
inline constexpr int kSavesSignalMask = 0;
#endif

/// Calls `access`, which reads or writes only `memory` of the program. False if the program has unmapped some of it, or
/// has changed its protection: then `access` has ended at the first such byte. `access` must not own anything, since
/// its destructors do not run then, and must not call guarded(). Costs a few nanoseconds.
template <typename Access>
bool guarded(std::span<const std::byte> memory, const Access& access) {
  GuardedAccess guard;
  guard.begin = memory.data();
  guard.end = memory.data() + memory.size();
  const bool returned_by_fault = sigsetjmp(guard.back, kSavesSignalMask) != 0;
  if (!returned_by_fault) {
    guarded_access.store(&guard, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    access();
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  guarded_access.store(nullptr, std::memory_order_relaxed);
  return !returned_by_fault;
}

}  // namespace plugfest
