// The collective connect of CollNet, GIN and RMA.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "harness/control/rank.h"

namespace plugfest::control {

/// The endpoint of a rank in a communicator.
struct Joined {
  Rank rank;
  std::uint64_t comm = 0;
};

/// The unfinished connects of ranks that form a communicator, each on its device 0.
class Joining {
 public:
  /// Listens on each rank. `more`: further arguments of connect.
  explicit Joining(std::vector<Rank> ranks, CallArguments more = {});
  /// Starts connect on all ranks, the last one `lateness` later.
  void start_all(std::chrono::milliseconds lateness = {});
  /// Starts connect on the rank `number`.
  void start(std::size_t number);
  /// Waits for connect on the rank `number`, and closes its listener if it has succeeded.
  CallOutcome get(std::size_t number);
  /// Waits for all ranks. Errors: `CallFailed`; `Deviation` if a connect stores no collComm.
  std::vector<Joined> get_all();

 private:
  std::vector<Rank> ranks_;
  CallArguments more_;
  std::vector<std::uint64_t> listeners_;
  std::vector<std::byte> handles_;
  std::vector<std::optional<Started<CallOutcome>>> started_;
};

}  // namespace plugfest::control
