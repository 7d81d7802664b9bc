// Runs a plan in its ranks and reports what failed first.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "harness/traffic/setup.h"

namespace plugfest::traffic {

struct RunOptions {
  std::uint64_t seed = 1;
  /// Each message has contents of its own, which are checked; else the GPUs compute with floats in `input` and
  /// `output` of each rank.
  bool patterns = true;
  std::vector<control::Slice> input = {}, output = {};
  /// Random pauses of GPUs and proxies; registrations on the same comms from another thread.
  bool noise = true;
  /// Puts every call into the reports.
  bool trace = false;
  /// If not null: once it is true, `run` throws control::Interrupted.
  const std::atomic<bool>* stop = nullptr;
};

/// Runs the kernels that `plan` has, removes them, and returns a report for each rank. Errors: `Deviation`, `Stalled`,
/// `Hung`, `Crashed` of the rank that failed first; the message has its last calls. The ranks are then unfit.
std::vector<rank::ReplayReport> run(const Team& team, Setup& setup, Plan& plan, const RunOptions& options);

}  // namespace plugfest::traffic
