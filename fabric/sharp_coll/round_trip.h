// Estimates the time from a contribution to its result, and computes from it when to send the contribution again.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "fabric/system/clock.h"

namespace plugfest::sharp_coll {

/// The smoothed round trip of RFC 6298. A round trip includes the wait for the slowest rank, therefore the timeout is
/// bounded: a rank that computed for a second does not delay the repair of the next loss by seconds.
class RoundTrip {
 public:
  static constexpr Nanoseconds kFirst = 50'000'000;
  static constexpr Nanoseconds kMin = 5'000'000;
  static constexpr Nanoseconds kMax = 200'000'000;
  static constexpr Nanoseconds kMaxBackedOff = 1'000'000'000;

  /// Adds a measured time. It must belong to a fragment that was sent once, because a result does not say which
  /// transmission it answers; the first sample may be longer than the round trip.
  void add(Nanoseconds sample) {
    if (smoothed_ == 0) {
      smoothed_ = sample;
      variation_ = sample / 2;
      return;
    }
    variation_ += (std::abs(sample - smoothed_) - variation_) / 4;
    smoothed_ += (sample - smoothed_) / 8;
  }

  bool is_unknown() const { return smoothed_ == 0; }

  /// How long to wait for the result of a fragment that was sent `transmissions` times (at least 1).
  Nanoseconds timeout(unsigned transmissions) const {
    const Nanoseconds first = smoothed_ == 0 ? kFirst : std::clamp(smoothed_ + 4 * variation_, kMin, kMax);
    return std::min(first << std::min(transmissions - 1, 10u), kMaxBackedOff);
  }

 private:
  Nanoseconds smoothed_ = 0;
  Nanoseconds variation_ = 0;
};

}  // namespace plugfest::sharp_coll
