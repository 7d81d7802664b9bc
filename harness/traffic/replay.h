// The traffic profiles of `plugfest replay`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "harness/traffic/plan.h"
#include "harness/traffic/setup.h"

namespace plugfest::traffic {

struct Profile {
  std::string_view name;
  /// "rings, SIMPLE: messages of up to 1 MiB".
  std::string_view summary;
};

/// The ranks do not reach each other as a profile needs. `what()` says how.
class Unsuitable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// ring-ar, ring-ll, tree, p2p-a2a, pxn, mixed.
const std::vector<Profile>& profiles();

/// A plan with `operations` collectives, or rounds of sends and receives, of random sizes. `name`: the name of a
/// profile. Errors: Unsuitable.
Plan make_plan(std::string_view name, const Team& team, std::size_t operations, std::uint64_t seed);

// Runs a plan in its ranks and reports what failed first.

struct RunOptions {
  std::uint64_t seed = 1;
  /// Each message has contents of its own, which are checked; else the GPUs compute with floats in `input` and
  /// `output` of each rank.
  bool patterns = true;
  std::vector<control::Slice> input = {}, output = {};
  /// Random pauses of GPUs and proxies; registrations on the same comms from another thread.
  bool noise = true;
  /// With noise: whether service threads register memory on comms that are in use.
  bool registrations = true;
  /// Puts the calls into the reports, as far as they fit: see ReplayReport::calls_left_out.
  bool trace = false;
  /// If not null: once it is true, `run` throws control::Interrupted.
  const std::atomic<bool>* stop = nullptr;
};

/// Runs the kernels that `plan` has, removes them, and returns a report for each rank. Errors: `Deviation`, `Stalled`,
/// `Hung`, `Crashed` of the rank that failed first; the message has its last calls. The ranks are then unfit.
/// std::runtime_error if the plan of a rank does not fit into one message; no rank has then started.
std::vector<wire::ReplayReport> run(const Team& team, Setup& setup, Plan& plan, const RunOptions& options);

}  // namespace plugfest::traffic
