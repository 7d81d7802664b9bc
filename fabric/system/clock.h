// The monotonic clock for deadlines and time stamps.
#pragma once

#include <time.h>

#include <cstdint>
#include <limits>

namespace plugfest {

/// Nanoseconds of CLOCK_MONOTONIC.
using Nanoseconds = std::int64_t;

/// A time that is never reached.
inline constexpr Nanoseconds kNever = std::numeric_limits<Nanoseconds>::max();

/// Current time. Thread safety: any thread.
inline Nanoseconds now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<Nanoseconds>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

/// Measures the time since its construction.
class Stopwatch {
 public:
  double seconds() const { return static_cast<double>(now_ns() - start_) / 1e9; }

 private:
  Nanoseconds start_ = now_ns();
};

}  // namespace plugfest
