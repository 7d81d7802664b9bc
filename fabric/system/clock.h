// The clock that deadlines and time stamps are taken from.
#pragma once

#include <time.h>

#include <cstdint>
#include <limits>

namespace plugfest {

/// Nanoseconds of CLOCK_MONOTONIC.
using Nanoseconds = std::int64_t;

inline constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();

inline Nanoseconds now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace plugfest
