// NCCL's side of a plugin: the logger and the profiler callback.
#pragma once

#include "harness/abi/base.h"

namespace plugfest::rank {

/// Formats each line with vsnprintf, as NCCL does, and writes it to kLogFd as a LogRecord. From any thread.
abi::Logger logger();

/// Accepts every event, checks nothing, gives out distinct handles. From any thread.
abi::ProfilerCallback profiler_callback();

}  // namespace plugfest::rank
