// Limits unreliable queue pairs to the port's speed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Allows packets at the rate of the port, in bursts of 50 µs. No acknowledgement limits unreliable queue pairs, so
/// without this limit they would overflow the receive buffer of any receiver.
///
/// Not thread-safe; guarded by the NIC's lock.
class RateLimiter {
 public:
  explicit RateLimiter(std::uint64_t rate_mbps) : rate_mbps_(std::max<std::uint64_t>(1, rate_mbps)) {}

  bool may_send(Nanoseconds now) const { return free_at_ <= now + kBurst; }

  /// When may_send() will allow half a burst of packets.
  Nanoseconds resume_at() const { return free_at_ - kBurst / 2; }

  void sent(std::uint64_t bytes, Nanoseconds now) {
    constexpr std::uint64_t kNanosecondsPerMegabit = 8000;
    free_at_ = std::max(free_at_, now) + static_cast<Nanoseconds>(bytes * kNanosecondsPerMegabit / rate_mbps_);
  }

 private:
  static constexpr Nanoseconds kBurst = 50'000;

  const std::uint64_t rate_mbps_;
  Nanoseconds free_at_ = 0;  ///< when the port would have sent all packets so far
};

}  // namespace plugfest::roce
