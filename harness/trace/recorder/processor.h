// Records how long the threads of NCCL have waited for a processor.
#pragma once

#include <cstdint>

namespace plugfest::trace {

/// Records how long the calling thread has waited for a processor since the last call that read the kernel's account of
/// it, if that is much. Reads it at most once in a millisecond. Does nothing where the kernel keeps none. `now_ns`:
/// CLOCK_MONOTONIC. Source: Linux, Documentation/scheduler/sched-stats.rst, /proc/<pid>/schedstat.
void sample_processor(std::int64_t now_ns) noexcept;

}  // namespace plugfest::trace
