// Counts the calls of NCCL to a profiler plugin. NCCL ignores their results.
#pragma once

namespace plugfest::nccl {

/// The calls are counted if this environment variable is set.
inline constexpr const char* kProfilerCallsVariable = "PLUGFEST_NCCL_PROFILER_CALLS";
/// Begins the line on standard error, "CALLS FAILED NANOSECONDS FIRST": the numbers of calls and of those that failed,
/// the time in all calls, and the first failure, as in "startEvent returned 3". Each time when the last communicator is
/// finalized; only the last line counts.
inline constexpr const char* kProfilerCallsLine = "plugfest profiler calls: ";

/// Returns a copy of a profiler's table whose calls are counted. `symbol`: "ncclProfiler_v5", for v1 to v6. Returns
/// `table` for other symbols. Not thread-safe: NCCL loads plugins one after the other.
void* count_profiler_calls(const char* symbol, void* table) noexcept;

}  // namespace plugfest::nccl
