// EE rules of CollNet plugins: NCCL reduces in the switches, and continues without them.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "conformance/end_to_end/nccl_rule.h"
#include "harness/bed/reduction.h"
#include "harness/bed/test_bed.h"
#include "harness/nccl/load.h"
#include "harness/nccl/rank_environment.h"

namespace plugfest::conformance {

namespace {

using nccl::JobRanks;

class CollNetJobRule : public NcclRule {
 protected:
  void require_reducing_switches() {
    if (!bed::can_reduce(graph()))
      skip(fmt::format("{} has no switches that can reduce: add --topology star:3", graph().name));
  }
};

}  // namespace

RULE_ON(CollNetJobRule, EE_12, Must, ApiRange::coll_net(),  //
        .title = "NCCL uses CollNet, and its results are right",
        .text =
            "NCCL uses the plugin's CollNet for allreduce, and every element is right for all types and operators that "
            "the plugin supports.",
        .source = "transport/coll_net.cc: collNetTrySetup; enqueue.cc: ncclGetCollNetSupport",
        .why =
            "A plugin whose set-up fails under NCCL reduces nothing, and nothing but the log says so. A wrong element "
            "is a wrong result of the user's program.",
        .check =
            "Runs an allreduce of 8 bytes and one of 100 KB for each type and operator, and one of 4 MB of floats, on "
            "a rank in each of up to four hosts whose switches reduce. NCCL may use only CollNet; combinations that it "
            "refuses are not tested. Checks every element.",
        .blind = "CollNetDirect, which NCCL uses only in hosts with NVSwitches.", .runs_nccl = true) {
  require_reducing_switches();
  const NcclJob job{.ranks = ranks_on_hosts(4), .environment = nccl::algorithm_environment("collnet")};
  run_job(job, [&](JobRanks& group) {
    if (const std::string reason = nccl::coll_net_fallback(group.logs()); !reason.empty()) broken(reason);
    std::size_t accepted = 0;
    const auto run = [&](std::size_t type, std::size_t op, std::size_t bytes) {
      const nccl::Measurement operation{.bytes = bytes,
                                        .type = static_cast<nccl::device::Type>(type),
                                        .redop = static_cast<nccl::RedOp>(op),
                                        .seed = random()()};
      std::vector<nccl::Outcome> outcomes;
      for (const nccl::Answer& answer : group.all(nccl::Run{"world", operation}, nccl::kInvalidUsage))
        if (answer.ok) outcomes.push_back(answer.outcome);
      if (outcomes.empty()) return;
      expect(outcomes.size() == static_cast<std::size_t>(group.size()), [&] {
        return fmt::format("{}, {}: NCCL uses CollNet on {} of {} ranks", nccl::type_names()[type],
                           nccl::redop_names()[op], outcomes.size(), group.size());
      });
      ++accepted;
      const nccl::Outcome outcome = nccl::combined(outcomes);
      expect(outcome.wrong() == 0, [&] {
        return fmt::format("allreduce of {} bytes, {}, {}, on {} ranks: {} wrong elements; the first: {}", bytes,
                           nccl::type_names()[type], nccl::redop_names()[op], group.size(), outcome.wrong(),
                           outcome.first_wrong);
      });
    };
    for (std::size_t type = 0; type < nccl::type_names().size(); ++type)
      for (std::size_t op = 0; op < nccl::redop_names().size(); ++op)
        for (const std::size_t bytes : {8u, 100'000u}) run(type, op, bytes);
    run(static_cast<std::size_t>(nccl::device::Type::kFloat), static_cast<std::size_t>(nccl::RedOp::kSum), 4'000'000);
    expect(accepted > 0, "NCCL uses CollNet for no type and no operator");
    group.all(nccl::Destroy{"world"});
    observe(nccl::algorithms_text(nccl::summarize(group.log(0))));
  });
}

RULE_ON(CollNetJobRule, EE_13, Must, ApiRange::coll_net(),  //
        .title = "NCCL continues without CollNet when the switches refuse",
        .text =
            "If the plugin cannot set up a tree of switches, its calls return errors. NCCL then creates the "
            "communicator without CollNet, and results are right.",
        .source = "init.cc: initTransportsRank continues when ncclCollNetSetup fails; transport/coll_net.cc",
        .why =
            "Switches have few trees, and other jobs may hold them. A plugin that ends the process, hangs, or damages "
            "its net part keeps a job from running that needs no CollNet.",
        .check =
            "Lets NCCL choose CollNet while the ranks do not find the aggregation manager, and again while they ask "
            "for more OSTs than a tree has. Requires right results of allreduces of 8 bytes and 300 KB.",
        .blind = "Plugins that do not use libsharp_coll.so: both times they find their switches.", .runs_nccl = true) {
  require_reducing_switches();
  control::Environment without_manager, beyond_quota = {{"SHARP_COLL_JOB_QUOTA_OSTS", "100000"}};
  bed::add_absent_reduction(without_manager);
  for (control::Environment environment : {without_manager, beyond_quota}) {
    environment.emplace_back("NCCL_COLLNET_ENABLE", "1");
    run_job({.ranks = ranks_on_hosts(3), .environment = environment}, [&](JobRanks& group) {
      const std::string reason = nccl::coll_net_fallback(group.logs());
      observe(reason.empty() ? "the plugin found its switches" : reason);
      for (const std::size_t bytes : {8u, 300'000u})
        require_right(group, "world", {.bytes = bytes, .seed = random()()});
      group.all(nccl::Destroy{"world"});
    });
  }
}

}  // namespace plugfest::conformance
