// Runs the operations of NCCL and checks every element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "harness/traffic/nccl/commands.h"
#include "harness/traffic/nccl/load.h"

namespace plugfest::nccl {

struct Outcome {
  std::size_t count = 0;  ///< elements, as the call gets it
  Timing out_of_place = {};
  std::optional<Timing> in_place = {};  ///< nothing for operations that have no such form
  std::string first_wrong = {};         ///< "element 17 of the output is 3, not 4"; empty if all are right
};

/// A failed call of NCCL or an asynchronous error.
struct NcclError {
  int code = 0;
  std::string text;  ///< "ncclCommGetAsyncError: remote process exited or …"
};

/// Waits until a communicator whose calls do not block has finished the last one. Errors: NcclError, also if the next
/// command is to abort.
void wait_until_ready(const Api& api, Comm comm);

/// Runs `measurement` on a communicator of `ranks` ranks, of which this is `rank`. Errors: NcclError.
Outcome measure(const Api& api, Comm comm, int rank, int ranks, const Measurement& measurement);

/// Sends bytes of a pattern from `rank` to `peer` of a communicator. Errors: NcclError.
void send_bytes(const Api& api, Comm comm, int rank, int peer, std::size_t bytes, std::uint64_t seed);
/// Receives what `peer` sends, and compares it. Errors: NcclError.
Differences receive_bytes(const Api& api, Comm comm, int peer, std::size_t bytes, std::uint64_t seed);

/// Repeats an allreduce of floats `rounds` times; each round waits for its result. Calls `is_running` after the third.
/// Returns how many elements of all rounds are wrong. Errors: NcclError.
std::size_t churn(const Api& api, Comm comm, int rank, int ranks, std::size_t bytes, int rounds, std::uint64_t seed,
                  const std::function<void()>& is_running);

}  // namespace plugfest::nccl
