// PR rules: the traffic of NCCL's proxies.
#include "harness/traffic/replay.h"

#include "conformance/net/script/flow.h"
#include "conformance/net/script/process_state.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

namespace {

// Runs a traffic profile on the ranks of the rule.
class ReplayRule : public MessageRule {
 protected:
  void replay(std::string_view profile, std::size_t operations) {
    const std::uint64_t seed = random()();
    const traffic::Team team(*context().lease, context().ranks);
    traffic::Plan plan = traffic::make_plan(profile, team, repeated(operations), seed);
    traffic::Setup setup(team, plan);
    traffic::run(team, setup, plan, {.seed = seed, .registrations = registers_during_transfers()});
  }
};

}  // namespace

RULE_ON(ReplayRule, PR_01, Must, ApiRange::all(),  //
        .title = "rings of NCCL's proxies, SIMPLE protocol",
        .text = "The calls of the send and receive proxies for collectives on rings complete and deliver every byte.",
        .source = "transport/net.cc: sendProxyProgress, recvProxyProgress; proxy.cc: progressOps",
        .why = "NCCL makes these calls for large allreduces. A call that fails or loses bytes breaks each of them.",
        .check =
            "Runs allreduce, allgather and broadcast with an emulated GPU: two channels in opposite directions (NCCL's "
            "channels have one direction), slices of two steps, empty last slices, request slots with the value of an "
            "earlier operation, and registrations on a second thread (unless NCCL does not register then: see MR-14).",
        .blind = "GPU memory and iflush.") {
  replay("ring-ar", 6);
}

RULE_ON(ReplayRule, PR_02, Must, ApiRange::all(),  //
        .title = "rings of NCCL's proxies, LL and LL128 protocols",
        .text = "The calls of the proxies for small collectives on rings complete and deliver every byte.",
        .source = "transport/net.cc: recvProxyProgress presets *request to 0x1; device/prims_ll.h: flags in lines",
        .why = "The GPU polls flags in the data and may use a message before NCCL knows that it has arrived.",
        .check =
            "Runs allreduce and reduce-scatter with lines whose flags the emulated GPU polls. Completion of receives "
            "is optional.",
        .blind = "Lines whose data arrives after their flag, if that is rare.") {
  const FlagProtocols protocols = flag_protocols(near_rank());
  if (!protocols.ll || !protocols.ll128) not_applicable("NCCL_PROTO excludes LL or LL128; XF-18 tests the other one");
  replay("ring-ll", 8);
}

RULE_ON(ReplayRule, PR_03, Must, ApiRange::all(),  //
        .title = "trees of NCCL's proxies",
        .text = "The calls of the proxies for collectives on trees complete and deliver every byte.",
        .source = "device/all_reduce.h: runTreeSplit; proxy.cc: SaveProxy for tree patterns",
        .why = "A rank of a tree has a proxy operation for its parent and each child, in both directions at once.",
        .check =
            "Runs allreduce, SIMPLE and LL, on two trees of three ranks: one of NCCL's, and one whose root has two "
            "children, which NCCL has from four ranks on.",
        .blind = "More than two children.", .ranks = 3, .starts_first = true) {
  replay("tree", 8);
}

RULE_ON(ReplayRule, PR_04, Must, ApiRange::all(),  //
        .title = "sends and receives between all pairs of GPUs",
        .text = "The calls of the proxies for an alltoall of unequal messages complete and deliver every byte.",
        .source = "transport/net.cc: shared buffers and comms; enqueue.cc: addP2pToPlan",
        .why = "Connections of several GPUs share comms and pools of buffers; their receives form groups.",
        .check =
            "Sends messages of random sizes, some empty, between two GPUs of each of three ranks. Every user of a "
            "shared comm listens and registers the pool; only one connects.",
        .blind = "Plugins with maxRecvs 1: each connection has a comm of its own.", .ranks = 3) {
  replay("p2p-a2a", 4);
}

RULE_ON(
    ReplayRule, PR_05, Must, ApiRange::all(),  //
    .title = "many GPUs send through one comm (PXN)",
    .text = "Messages of six senders through one comm arrive in the buffers of their tags, in groups that shrink.",
    .source = "transport/net.cc: sendProxyConnect with PXN; recvProxyProgress groups subs with one recvComm",
    .why = "With PXN only the tag tells from which GPU a message comes, and many messages are in flight on one comm.",
    .check = "Sends messages of random sizes from six GPUs of a rank to six of another, on two channels.",
    .blind = "Plugins with maxRecvs 1: each connection has a comm of its own.",
    .faults = {{"aws/aws-ofi-nccl#1340", "an entry of a group that had half arrived was read as tag 0"}}) {
  replay("pxn", 2);
}

RULE_ON(ReplayRule, PR_06, Must, ApiRange::all(),  //
        .title = "collectives, sends and receives at the same time",
        .text = "Operations of all kinds that run at the same time on many comms complete and deliver every byte.",
        .source = "proxy.cc: progressOps walks all active operations on one thread",
        .why = "Programs overlap collectives with sends and receives; one thread makes the calls of all.",
        .check = "Runs rings, trees and an alltoall of three ranks at the same time, including LL sends and receives.",
        .blind = "More than three ranks: see plugfest replay --topology.", .ranks = 3) {
  replay("mixed", 3);
}

}  // namespace plugfest::conformance
