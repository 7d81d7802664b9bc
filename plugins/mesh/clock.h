// A monotonic clock that is cheap to read.
#pragma once

#include <time.h>

#include <cstdint>

namespace mesh {

/// Milliseconds since an arbitrary start. Advances with the kernel's tick, every 1 to 10 ms.
inline std::int64_t coarse_now_ms() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

}  // namespace mesh
