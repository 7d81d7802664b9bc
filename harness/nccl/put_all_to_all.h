// An alltoall by puts over the network (GIN), which the CPU initiates in place of a kernel.
#pragma once

#include <functional>

#include "harness/nccl/operations.h"

namespace plugfest::nccl {

/// Runs rounds, and calls `is_running` after the third one. In each round, each rank:
///  1. waits for all ranks, by signals that serve only for this;
///  2. puts a part of its input into the output of each rank, itself included: an equal share by each context, with a
///     signal to which all ranks add;
///  3. waits for the signals, and compares their values and each byte of its output;
///  4. flushes its puts, and overwrites its input.
/// Returns the differences of the first round that has some, which is the last one. Errors: NcclError, including if the
/// next command is to abort. After an error or a difference, the windows and the device communicator remain.
Differences put_all_to_all(const Member& member, const PutAllToAll& command, const std::function<void()>& is_running);

}  // namespace plugfest::nccl
