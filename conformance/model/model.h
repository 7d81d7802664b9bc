// A model of a net plugin: which schedules are valid, and which results a correct plugin delivers.
//
// It knows the contract only. For a net: a send fills the first free buffer with its tag in the oldest incomplete
// receive of its comm (XF-23, XF-24). The plugin chooses everything else, such as when calls are deferred and in which
// order operations complete, and programs of ranks accept any choice. For GIN and RMA: operations write the memory and
// the signals that they name, and nothing else, in any order (GI-38).
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/model/schedule.h"
#include "harness/wire/workloads.h"

namespace plugfest::model {

/// A step that no correct user of a plugin takes: a transfer on a closed comm, a receive whose buffer is too small.
class InvalidStep : public std::runtime_error {
 public:
  InvalidStep(std::size_t step, const std::string& what) : std::runtime_error(what), step_(step) {}
  /// Index into Schedule::steps.
  std::size_t step() const { return step_; }

 private:
  std::size_t step_;
};

/// One connection of a schedule, and its index in the programs of its ranks.
struct CommPlan {
  unsigned from = 0, to = 0;
  std::size_t from_comm = 0, to_comm = 0;
};

/// An operation of a schedule: the step, and the place of its bytes in the memory of the rank that they reach.
struct OperationPlan {
  std::size_t step = 0;
  std::size_t offset = 0;
};

/// Operations between two comparisons.
struct Round {
  std::vector<OperationPlan> operations;
  /// The signals of each rank afterwards: signal i of rank r is at kSignals * r + i.
  std::vector<std::uint64_t> signals;
};
/// Bytes after the bytes of each operation that no operation writes.
inline constexpr std::size_t kGapBytes = 64;

/// The program of each rank, and the messages that it must receive.
struct Plan {
  /// The program of each rank, without handles, listeners and devices.
  std::vector<wire::Program> programs;
  std::vector<CommPlan> connections;
  std::vector<Freeze> freezes;

  /// The operations of a schedule of GIN or RMA, and the memory that each rank reads and writes in it.
  std::vector<Round> rounds;
  std::size_t source_bytes = 0, target_bytes = 0;
};

/// Errors: InvalidStep.
Plan plan(const Schedule& schedule);

/// Removes steps that are invalid because an earlier step was removed.
Schedule without_invalid_steps(const Schedule& schedule);

/// The number of messages of the largest group.
std::size_t widest_group(const Schedule& schedule);

}  // namespace plugfest::model
