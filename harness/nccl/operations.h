// Runs the operations of NCCL and checks every element.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "harness/nccl/commands.h"
#include "harness/nccl/load.h"

namespace plugfest::nccl {

/// A communicator on this rank.
struct Member {
  const Api* api = nullptr;
  Controller* controller = nullptr;
  Comm comm = nullptr;
  int ranks = 0, rank = 0;
};

/// A failed call of NCCL or an asynchronous error.
struct NcclError {
  int code = 0;
  std::string text;  ///< "ncclCommGetAsyncError: remote process exited or …"
};

// Errors of these functions: NcclError, including if the next command is to abort.

/// Returns the state of a communicator: kOk or kInProgress.
int state_of(const Member& member);
void require_no_abort(const Member& member);
/// Waits until a communicator whose calls do not block has finished the last one.
void wait_until_ready(const Member& member);

Outcome measure(const Member& member, const Measurement& measurement);

/// Sends bytes of a pattern.
void send_bytes(const Member& member, const Send& command);
/// Receives the peer's bytes and compares them.
Differences receive_bytes(const Member& member, const Receive& command);

/// Returns the number of wrong elements. Calls `is_running` after the third round.
std::size_t churn(const Member& member, const Churn& command, const std::function<void()>& is_running);

}  // namespace plugfest::nccl
