// Wakes the NIC's service thread at once or at a deadline.
#pragma once

#include <poll.h>

#include <atomic>
#include <functional>
#include <limits>
#include <vector>

#include "fabric/system/clock.h"
#include "fabric/system/file.h"

namespace plugfest::roce {

/// The event that interrupts the service thread's sleep. Thread safety: wake() and wake_by() from any thread, sleep()
/// from one thread.
class Wakeup {
 public:
  /// Errors: std::system_error.
  Wakeup();

  /// Ends the current sleep(), or the next one.
  void wake();

  /// Calls wake() if the current sleep() would end after `deadline`.
  void wake_by(Nanoseconds deadline) {
    if (deadline < sleeps_until_.load()) wake();
  }

  /// Sleeps until a descriptor of `readable` can be read, one of `writable` can be written, wake() is called, or
  /// `deadline()` has passed. Deadlines that change while the thread sleeps must be announced by wake_by().
  void sleep(const std::vector<int>& readable, const std::vector<int>& writable,
             const std::function<Nanoseconds()>& deadline);

  /// Closes the event in a child process after fork.
  void close_in_child() { event_ = Descriptor(); }

 private:
  static constexpr Nanoseconds kAwake = std::numeric_limits<Nanoseconds>::min();

  Descriptor event_;
  std::atomic<Nanoseconds> sleeps_until_{kAwake};
};

/// The earliest of the deadlines that were armed. Thread safety: deadline() from any thread, the rest guarded by the
/// NIC's lock.
class Timer {
 public:
  explicit Timer(Wakeup& wakeup) : wakeup_(wakeup) {}

  /// Moves the deadline forward to `deadline` if that is earlier, and wakes the service thread if it would sleep
  /// longer.
  void arm(Nanoseconds deadline) {
    if (deadline >= deadline_.load(std::memory_order_relaxed)) return;
    deadline_.store(deadline);
    wakeup_.wake_by(deadline);
  }

  void disarm() { deadline_.store(kNever); }

  /// kNever if the timer is not armed.
  Nanoseconds deadline() const { return deadline_.load(); }
  bool due(Nanoseconds now) const { return now >= deadline_.load(std::memory_order_relaxed); }
  bool armed() const { return deadline_.load(std::memory_order_relaxed) != kNever; }

 private:
  Wakeup& wakeup_;
  std::atomic<Nanoseconds> deadline_{kNever};
};

}  // namespace plugfest::roce
