// The time limit of loops of plugin calls that make no progress.
#pragma once

#include <memory>
#include <utility>

#include "fabric/system/load_clock.h"

namespace plugfest::control {

/// Call `expired()` in each turn without progress, and `restart()` after each other turn. Counts in the time of a
/// LoadClock, and requires some turns: on a busy machine few of them fit into the limit. Copies count apart.
/// Thread safety: that of the clock.
class StallLimit {
 public:
  StallLimit(std::shared_ptr<LoadClock> clock, Nanoseconds limit)
      : clock_(std::move(clock)), limit_(limit), start_(clock_->now()) {}

  /// The limit multiplied, from now on.
  StallLimit times(double factor) const {
    return {clock_, static_cast<Nanoseconds>(static_cast<double>(limit_) * factor)};
  }
  double seconds() const { return static_cast<double>(limit_) / 1e9; }

  void restart() {
    start_ = clock_->now();
    turns_ = 0;
  }
  bool expired() { return ++turns_ >= kFewestTurns && clock_->now() - start_ > limit_; }

 private:
  static constexpr int kFewestTurns = 32;

  std::shared_ptr<LoadClock> clock_;
  Nanoseconds limit_;
  Nanoseconds start_;
  int turns_ = 0;
};

}  // namespace plugfest::control
