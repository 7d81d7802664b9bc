// An alltoall by puts over the network (GIN), which the CPU initiates in place of a kernel.
#pragma once

#include <functional>

#include "harness/nccl/operations.h"

namespace plugfest::nccl {

/// In each round, each rank puts a part of its input into the output of each rank, itself included: an equal share by
/// each context, with a signal that all ranks add to. The ranks meet at the beginning of a round by signals of their
/// own. Once the signals have arrived, compares them and each byte of the output; once the puts are flushed, overwrites
/// the input. Ends after a round with wrong bytes or a wrong signal, and returns these. Calls `is_running` after the
/// third round. Errors: NcclError, including if the next command is to abort. After an error or a difference, the
/// windows and the device communicator remain.
Differences put_all_to_all(const Member& member, const PutAllToAll& command, const std::function<void()>& is_running);

}  // namespace plugfest::nccl
