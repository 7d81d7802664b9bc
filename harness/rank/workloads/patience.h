// How long a loop of plugin calls goes on without getting anywhere.
#pragma once

#include <sched.h>

#include <cstdint>

#include "harness/rank/calls/dispatch.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

/// Ask `over()` once in each fruitless turn; it yields the processor now and then, and tells the controller that the
/// loop still turns, so that only a plugin call that does not return counts as hung.
class Patience {
 public:
  Patience(std::int64_t limit_ns, const Progress& progress)
      : limit_ns_(limit_ns), progress_(progress), since_(now_ns()), told_(since_) {}

  /// Something got done: the time starts again.
  void renew() {
    fruitless_ = 0;
    since_ = 0;
  }

  /// True when nothing has got done for the whole limit.
  bool over() {
    // The clock is looked at in every 16th turn.
    if (++fruitless_ % 16 != 0) return false;
    sched_yield();
    tell();
    const std::int64_t now = now_ns();
    if (since_ == 0) since_ = now;
    return now - since_ > limit_ns_;
  }

  /// For turns that do get something done.
  void tell() {
    const std::int64_t now = now_ns();
    if (now - told_ < limit_ns_ / 8) return;
    told_ = now;
    progress_();
  }

 private:
  std::int64_t limit_ns_;
  const Progress& progress_;
  std::int64_t since_;
  std::int64_t told_;
  std::uint64_t fruitless_ = 0;
};

}  // namespace plugfest::rank
