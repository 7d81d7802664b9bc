// Base of the rules that run NCCL itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "conformance/rules/rule_body.h"
#include "fabric/topology/graph.h"
#include "harness/control/launcher.h"
#include "harness/nccl/commands.h"
#include "harness/nccl/job_ranks.h"
#include "harness/nccl/log_summary.h"

namespace plugfest::conformance {

struct NcclJob {
  /// 0: one rank in each host.
  int ranks = 0;
  /// Variables added to the environment of the ranks.
  Environment environment = {};
  /// The network plugin that NCCL loads instead of the subject; empty: the subject.
  std::string plugin = {};
  /// False: the body is skipped unless NCCL uses the plugin, since its verdict would be about another network.
  bool any_network = false;
};

class NcclRule : public RuleBody {
 protected:
  /// Starts the ranks of a job with the communicator "world", and runs `part`. A failure in NCCL or in `part` ends the
  /// rule, and the logs of the ranks become evidence.
  void run_job(const NcclJob& job, const std::function<void(nccl::JobRanks& group)>& part);

  /// Runs an operation on `members` of a communicator, or all ranks, and requires that every element is right.
  void require_right(nccl::JobRanks& group, const std::string& communicator, const nccl::Measurement& operation,
                     std::vector<int> members = {});
  /// Calls require_right() for every operation, each with `bytes`.
  void require_all_right(nccl::JobRanks& group, const std::string& communicator, std::size_t bytes);

  /// Starts allreduces of `rounds` rounds on all ranks, and returns once they are under way on each. The ranks then
  /// answer a second time: RankGroup::receive().
  void start_traffic(nccl::JobRanks& group, int rounds);
  /// Starts the same allreduces on `ranks` of another communicator, and does not wait.
  void send_traffic(nccl::JobRanks& group, const std::string& communicator, int rounds, const std::vector<int>& ranks);
  /// For a job in which something failed: waits until an operation of `ranks` on `communicator` has answered an error,
  /// tells all ranks to abort and requires that ncclCommAbort returns. Returns the first error; "" if all operations
  /// ended without an error, or if `seconds` are given and pass without one.
  std::string require_error_and_abort(nccl::JobRanks& group, const std::vector<int>& ranks,
                                      const std::string& communicator = "world",
                                      std::optional<double> seconds = std::nullopt);
  /// Tells `ranks` to abort a communicator and requires that ncclCommAbort returns. `running`: the ranks whose
  /// operation has not answered.
  void require_abort(nccl::JobRanks& group, const std::string& communicator, const std::vector<int>& ranks,
                     const std::vector<int>& running);
  /// The last answer of a rank to Churn or Init.
  static nccl::Answer last_answer(nccl::JobRanks& group, int rank);

  /// Variables with which NVIDIA's IB transport and the mesh plugin report a dead peer within seconds.
  static Environment short_timeouts() { return {{"NCCL_IB_TIMEOUT", "14"}, {"NCCL_MESH_TIMEOUT", "14"}}; }
  const topology::Graph& graph() const;
  /// The number of hosts, at least 2 and at most `most`.
  int ranks_on_hosts(int most) const;

 private:
  [[noreturn]] void report(nccl::JobRanks& group, const nccl::JobFailed& failed);
  void keep_logs(const nccl::JobRanks& group);
};

}  // namespace plugfest::conformance
