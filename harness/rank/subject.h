// The plugin under test in this process, and the functions that NCCL passes to it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/abi/base.h"
#include "harness/plugin/library.h"

namespace plugfest::rank {

/// The plugin of the most recent Load. Errors: std::logic_error when none is loaded. The reference is valid until the
/// next Unload.
plugin::Library& library();

/// The net interface of the plugin. Errors: std::logic_error when none or another interface is loaded.
plugin::Net& subject();

/// Formats each line with vsnprintf, as NCCL does, and writes it to kLogFd as a LogRecord. Thread safety: any thread.
abi::Logger logger();

/// The profiler callback `number`, 1 to kProfilerCallbacks. The callbacks answer as the last RecordProfiler says,
/// record the calls while it asks for that, and store distinct handles. A recorded call accesses no invalid memory,
/// whatever the plugin passes. Thread safety: any thread. Errors: std::out_of_range.
abi::ProfilerCallback profiler_callback(std::uint64_t number);
inline constexpr std::size_t kProfilerCallbacks = 2;

}  // namespace plugfest::rank
