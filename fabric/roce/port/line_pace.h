// The speed of the port, for what no acknowledgement holds back: unreliable queue pairs send no faster than the wire
// would carry it, so that a receiver has a chance.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class LinePace {
 public:
  explicit LinePace(std::uint64_t rate_mbps) : rate_mbps_(std::max<std::uint64_t>(1, rate_mbps)) {}

  bool may_send(Nanoseconds now) const { return free_at_ <= now + kBurst; }

  /// When may_send() has something to give again, not only just.
  Nanoseconds resume_at() const { return free_at_ - kBurst / 2; }

  void sent(std::uint64_t bytes, Nanoseconds now) {
    constexpr std::uint64_t kNanosecondsPerMegabit = 8000;
    free_at_ = std::max(free_at_, now) + static_cast<Nanoseconds>(bytes * kNanosecondsPerMegabit / rate_mbps_);
  }

 private:
  static constexpr Nanoseconds kBurst = 50'000;

  const std::uint64_t rate_mbps_;
  Nanoseconds free_at_ = 0;
};

}  // namespace plugfest::roce
