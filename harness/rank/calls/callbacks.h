// The functions that NCCL passes to a plugin: the logger and the profiler callback.
#pragma once

#include "harness/abi/base.h"

namespace plugfest::rank {

/// Formats each line with vsnprintf, as NCCL does, and writes it to kLogFd as a LogRecord. Thread safety: any thread.
abi::Logger logger();

/// Accepts every event without checks and stores distinct event handles. Thread safety: any thread.
abi::ProfilerCallback profiler_callback();

}  // namespace plugfest::rank
