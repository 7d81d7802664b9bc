// A clock for limits of processes that compete for processors.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/system/clock.h"

namespace plugfest {

/// Time that nearly stops while the watched threads wait for a processor, so that waiting does not count against a
/// limit. On an idle machine, or without /proc, the clock is CLOCK_MONOTONIC.
///
/// Between two readings at least 100 ms apart, the clock leaves out the longest time that any watched thread was
/// runnable and did not run, or waited for a lock of the kernel (state D). The holder of such a lock may also lack a
/// processor. The clock runs at a thirtieth of the normal speed at least, so that each limit has an upper bound. Thread
/// safety: one thread at a time.
class LoadClock {
 public:
  enum class Own : std::uint8_t {
    kThread,   ///< the calling thread; its waits add to the waits of others, since it makes them work in turn
    kProcess,  ///< all threads of this process
  };
  /// The clock is at most this many times slower than CLOCK_MONOTONIC.
  static constexpr int kSlowest = 30;

  /// `proc`: the proc file system; tests pass another folder.
  explicit LoadClock(Own own, std::string proc = "/proc") : own_(own), proc_(std::move(proc)) {}

  /// Adds all threads of a process. A process that has ended no longer counts.
  void watch(pid_t process) { watched_[process]; }
  /// Time for which a process that this machine cannot see has waited. The value only grows, and may grow after the
  /// wait has ended. Any thread may write it.
  using Meter = std::atomic<Nanoseconds>;
  void watch(std::shared_ptr<const Meter> meter) { meters_.push_back({std::move(meter)}); }

  /// Time since the first call. It never decreases. Costs as much as reading CLOCK_MONOTONIC, and some system calls for
  /// each watched thread every 100 ms.
  Nanoseconds now() { return at(now_ns()); }
  /// Returns what now() returns when CLOCK_MONOTONIC is `monotonic`. For tests.
  Nanoseconds at(Nanoseconds monotonic);
  /// The time for which threads of the watched processes have run, until the last reading.
  Nanoseconds ran() const { return ran_; }
  /// Speed relative to CLOCK_MONOTONIC between the last two readings: from 1/kSlowest to 1.
  double speed() {
    now();
    return speed_;
  }

 private:
  struct Usage {
    std::uint64_t ran_ns = 0;
    std::uint64_t waited_ns = 0;  ///< waits that have ended
    std::uint64_t turns = 0;      ///< how often it got a processor
    char state = 0;               ///< as in its file "stat"; 0 for the calling thread
  };
  using Threads = std::map<pid_t, Usage>;
  struct WatchedMeter {
    std::shared_ptr<const Meter> meter;
    Nanoseconds counted = meter->load();
  };

  /// The longest wait of a thread of the process since the previous call; `window`: the time since then.
  Nanoseconds longest_wait(const std::string& process, Threads& threads, Nanoseconds window);
  /// The time that a thread waited since the previous call. `folder`: the thread's folder in /proc. `is_own`: the
  /// thread is the caller.
  Nanoseconds wait_of(const std::string& folder, Usage& usage, bool is_own, Nanoseconds window) const;
  void read(Nanoseconds monotonic);

  const Own own_;
  const std::string proc_;
  std::map<pid_t, Threads> watched_;
  Threads own_threads_;
  std::vector<WatchedMeter> meters_;
  Nanoseconds read_at_ = 0;  ///< 0: never
  Nanoseconds elapsed_ = 0;  ///< time of this clock at read_at_
  Nanoseconds latest_ = 0;   ///< the latest result
  Nanoseconds ran_ = 0;
  double speed_ = 1;
};

}  // namespace plugfest
