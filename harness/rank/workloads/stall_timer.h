// Ends loops of plugin calls that make no progress.
#pragma once

#include <sched.h>

#include <cstdint>

#include "fabric/system/clock.h"
#include "fabric/system/load_clock.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

/// Call `expired()` once in each turn without progress, and `restart()` after each other turn.
///
/// Both tell the controller now and then that the loop runs, so that only a plugin call that does not return counts as
/// hung. `expired()` also yields the processor. One thread, a thread of the rank.
class StallTimer {
 public:
  explicit StallTimer(std::int64_t timeout_ns) : timeout_ns_(timeout_ns), told_ns_(now_ns()) {}

  /// The loop made progress.
  void restart() {
    turns_ = 0;
    since_ns_ = kNever;
    tell(now_ns());
  }

  /// True when the loop has made no progress for the whole timeout. Time in which the thread waits for a processor does
  /// not count (LoadClock).
  bool expired() {
    // Reads the clock in every 16th turn.
    if (++turns_ % 16 != 0) return false;
    sched_yield();
    tell(now_ns());
    const std::int64_t now = clock_.now();
    if (since_ns_ == kNever) since_ns_ = now;
    return now - since_ns_ > timeout_ns_;
  }

 private:
  void tell(std::int64_t now) {
    if (now - told_ns_ < timeout_ns_ / 8) return;
    told_ns_ = now;
    this_thread().report_progress();
  }

  const std::int64_t timeout_ns_;
  LoadClock clock_{LoadClock::Own::kThread};
  /// Of `clock_`. kNever: the next look at the clock sets it.
  std::int64_t since_ns_ = kNever;
  std::int64_t told_ns_;
  std::uint64_t turns_ = 0;
};

}  // namespace plugfest::rank
