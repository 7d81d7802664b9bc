// Runs the operations of NCCL and checks every element.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "harness/nccl/load/api.h"
#include "harness/nccl/rank/measurement.h"

namespace plugfest::nccl {

struct Outcome {
  std::size_t count = 0;  ///< elements, as the call gets it
  Timing out_of_place = {};
  std::optional<Timing> in_place = {};  ///< nothing for operations that have no such form
};

/// A failed call of NCCL or an asynchronous error.
struct NcclError {
  int code = 0;
  std::string text;  ///< "ncclCommGetAsyncError: remote process exited or …"
};

/// Runs `measurement` on a communicator of `ranks` ranks, of which this is `rank`. Errors: NcclError.
Outcome measure(const Api& api, Comm comm, int rank, int ranks, const Measurement& measurement);

}  // namespace plugfest::nccl
