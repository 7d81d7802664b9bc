// The plugin under test in this process, and the functions that NCCL passes to it.
#pragma once

#include "harness/abi/base.h"
#include "harness/plugin/library.h"

namespace plugfest::rank {

/// The plugin of the most recent Load. Errors: std::logic_error when none is loaded. The reference is valid until the
/// next Unload.
plugin::Library& library();

/// Its net interface. Errors: std::logic_error when none or another interface is loaded.
plugin::Net& subject();

/// Formats each line with vsnprintf, as NCCL does, and writes it to kLogFd as a LogRecord. Thread safety: any thread.
abi::Logger logger();

/// Accepts every event without checks and stores distinct event handles. Thread safety: any thread.
abi::ProfilerCallback profiler_callback();

}  // namespace plugfest::rank
