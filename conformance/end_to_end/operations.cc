// EE rules: NCCL's operations give right results.
#include <fmt/format.h>

#include "conformance/end_to_end/nccl_rule.h"

namespace plugfest::conformance {

using nccl::RankGroup;

RULE_ON(
    NcclRule, EE_03, Must, ApiRange::all(),  //
    .title = "all operations are right on 2, 3, 4 and 8 ranks",
    .text = "Every element of every operation of NCCL is right, for small and large sizes.",
    .source = "nccl-tests; enqueue.cc chooses algorithm, protocol and channels by size and number of ranks",
    .why = "It is what the plugin is for.",
    .check =
        "Runs the seven operations with 1 KB on 2, 3, 4 and 8 ranks, spread over the hosts, and on up to 4 ranks with "
        "500 KB, with NCCL's own choice of rings, trees, LL and Simple, and checks every element.",
    .blind = "LL128, PAT, NVLS and CollNet, and other types than float: see plugfest nccl.", .runs_nccl = true) {
  for (const int ranks : {2, 3, 4, 8}) {
    run_job({.ranks = ranks}, [&](RankGroup& group) {
      require_all_right(group, "world", 1000);
      if (ranks <= 4) require_all_right(group, "world", 500'000);
      group.all("destroy world");
    });
  }
}

RULE_ON(
    NcclRule, EE_05, Must, ApiRange::all(),  //
    .title = "a sender may destroy its communicator at once",
    .text =
        "Data that ncclSend has accepted arrives although the sender destroys its communicator before the receiver "
        "starts to receive.",
    .source = "proxy.cc: ncclProxyStop waits for the operations of proxies; transport/net.cc: sendProxyFree",
    .why =
        "The last operation of a pipeline stage is a send. A plugin that reports a send as done before the data is on "
        "its way loses it when it closes.",
    .check =
        "Sends 100 KB one way, then 300 KB, and destroys the sender's communicator before the receiver asks for the "
        "data. "
        "Checks every byte.",
    .blind = "Messages that do not fit into NCCL's buffers: there the sender waits for the receiver anyway.",
    .runs_nccl = true) {
  run_job({.ranks = 2}, [&](RankGroup& group) {
    const auto require_data = [&](const nccl::Answer& answer) {
      expect(answer.ok, [&] { return fmt::format("rank 1: {}", answer.text); });
      expect(answer.text == "0", [&] { return fmt::format("rank 1 received wrong bytes: {}", answer.text); });
    };
    const auto require_ok = [&](const nccl::Answer& answer) {
      expect(answer.ok, [&] { return fmt::format("rank 0: {}", answer.text); });
    };
    const std::uint64_t first = random()(), second = random()();
    // Connects.
    group.send(0, fmt::format("send world 1 100000 {}", first));
    group.send(1, fmt::format("receive world 0 100000 {}", first));
    require_ok(group.receive(0));
    require_data(group.receive(1));

    group.send(0, fmt::format("send world 1 300000 {}", second));
    group.send(0, "destroy world");
    require_ok(group.receive(0));  // the data is in NCCL's buffers
    group.send(1, fmt::format("receive world 0 300000 {}", second));
    require_data(group.receive(1));
    require_ok(group.receive(0));
    group.send(1, "destroy world");
    expect(group.receive(1).ok, "rank 1: ncclCommDestroy failed");
  });
}

RULE_ON(
    NcclRule, EE_08, Must, ApiRange::all(),  //
    .title = "a thousand small operations",
    .text = "Operations that follow each other without a wait are right, each of them.",
    .source = "enqueue.cc; proxy.cc: operations of one connection follow each other in the proxy's list",
    .why = "Programs launch thousands of small operations before they look at the first result.",
    .check =
        "Launches 1000 allreduces, 1000 sends and receives in a ring, and 1000 broadcasts, without waiting, each on "
        "its own 100 bytes, and checks every element.",
    .blind = "Effects that need more than some thousand messages.", .runs_nccl = true) {
  run_job({}, [&](RankGroup& group) {
    for (const nccl::Operation operation :
         {nccl::Operation::kAllReduce, nccl::Operation::kSendRecv, nccl::Operation::kBroadcast}) {
      require_right(group, "world", {.operation = operation, .bytes = 100'000, .seed = random()(), .pieces = 1000});
    }
    group.all("destroy world");
  });
}

RULE_ON(
    NcclRule, EE_09, Must, ApiRange::all(),  //
    .title = "sixteen ranks",
    .text = "Sixteen ranks get right results, on sixteen hosts if the topology has them, as fat-tree:4 does.",
    .source = "graph/connect.cc: rings and trees over hosts",
    .why = "Trees have inner ranks with three neighbours only from some ranks on, and NICs serve several processes.",
    .check =
        "Runs an allreduce, an allgather and a broadcast on sixteen ranks, spread over the hosts of the run, and "
        "checks "
        "every element.",
    .blind = "On a topology with fewer hosts, ranks of one host use shared memory among themselves.",
    .runs_nccl = true) {
  run_job({.ranks = 16}, [&](RankGroup& group) {
    for (const nccl::Operation operation :
         {nccl::Operation::kAllReduce, nccl::Operation::kAllGather, nccl::Operation::kBroadcast})
      require_right(group, "world", {.operation = operation, .bytes = 50000, .root = 15, .seed = random()()});
    group.all("destroy world");
  });
}

}  // namespace plugfest::conformance
