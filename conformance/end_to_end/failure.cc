// EE rules: failures of a peer and of the network while NCCL runs.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "conformance/end_to_end/nccl_rule.h"
#include "harness/bed/test_bed.h"
#include "harness/faults/script.h"

namespace plugfest::conformance {
namespace {

using nccl::JobRanks;

constexpr int kForever = 1'000'000;

std::vector<int> all_but(const JobRanks& group, int rank) {
  std::vector<int> ranks = group.all_ranks();
  std::erase(ranks, rank);
  return ranks;
}

// The interface of the second host towards the first one; nullopt if they do not reach each other.
std::optional<faults::Interface> link_of_first_hosts(const topology::Graph& graph) {
  for (const topology::Path& path : graph.paths()) {
    if (path.from.host == 0 && path.to.host == 1) return faults::find_interface(graph, graph.interface_name(path.to));
    if (path.from.host == 1 && path.to.host == 0) return faults::find_interface(graph, graph.interface_name(path.from));
  }
  return std::nullopt;
}

}  // namespace

RULE_ON(NcclRule, EE_06, Must, ApiRange::all(),  //
        .title = "a killed rank gives the others an error, and they can abort",
        .text =
            "When a rank is killed during an operation, ncclCommGetAsyncError reports an error on at least one "
            "survivor, in this operation or in the survivor's next one. ncclCommAbort then returns on all survivors, "
            "and these can create a communicator without the dead rank.",
        .source = "proxy.cc: an error of a plugin's call becomes the communicator's; init.cc: ncclCommAbort",
        .why =
            "Jobs that restart from a checkpoint wait for this error. Without it they wait for a watchdog, and an "
            "abort that hangs keeps the processes from restarting.",
        .check =
            "Kills rank 1 during allreduces, waits until a survivor has an error, aborts on all survivors, and runs an "
            "allreduce on a new communicator of the survivors. If no error comes within a quarter of the time limit, "
            "the survivors abort and start an allreduce on another communicator of all ranks. This one must give the "
            "error. The second try is for plugins whose receivers announce their buffers: without an announcement "
            "a survivor has no send in flight, and detects the death of its peer only when it connects again.",
        .blind = "Which of the survivors sees the error, and when within the time limit.",
        .faults = {{"NVIDIA/nccl#992", "a lost peer left the others waiting"},
                   {"aws/aws-ofi-nccl#347", "a failed completion was not reported to NCCL"}},
        .runs_nccl = true) {
  constexpr std::size_t kBytes = 100'000;
  // With three hosts, two survivors.
  run_job({.ranks = std::max(3, ranks_on_hosts(3)), .environment = short_timeouts()}, [&](JobRanks& group) {
    group.init("idle");  // keeps the plugin loaded: NCCL 2.28.9 does not load one a second time
    require_right(group, "idle", {.bytes = kBytes, .seed = random()()});
    start_traffic(group, kForever);
    group.kill(1);
    const std::vector<int> survivors = all_but(group, 1);
    std::string error = require_error_and_abort(group, survivors, "world", context().nccl.seconds / 4);
    group.init("rest", survivors);
    if (error.empty()) {
      send_traffic(group, "idle", 1, survivors);
      error = require_error_and_abort(group, survivors, "idle");
      expect(!error.empty(), "an allreduce with a dead rank ended without an error");
    }
    observe(error);
    require_right(group, "rest", {.bytes = kBytes, .seed = random()()}, survivors);
  });
}

RULE_ON(
    NcclRule, EE_07, Must, ApiRange::all(),  //
    .title = "an error of the plugin becomes one of NCCL, and all ranks can abort",
    .text =
        "When a call of the plugin returns an error on one rank, NCCL reports an error on this rank. ncclCommAbort "
        "returns on every rank, even if requests are in flight or a connection is half-open. A new communicator then "
        "works.",
    .source = "proxy.cc: proxyProgressAsync, ncclProxyProgress; init.cc: ncclCommInitRankFunc, ncclCommAbort",
    .why =
        "After an error, the plugin's comms are closed in a state that no finished operation leaves behind. A close "
        "that waits for its requests, or for a peer that has given up, hangs the process that should restart.",
    .check =
        "Runs two ranks with a library between NCCL and the plugin, which makes three calls return ncclSystemError, "
        "each on one rank: first listen, connect, accept or regMr while a communicator is created, then two of isend, "
        "irecv and test during allreduces. After each, requires an error of NCCL on that rank, and aborts on both. At "
        "the end runs an allreduce on a new communicator.",
    .blind =
        "How the plugin behaves after an error of its own, which the ER and CL rules check. The functions that the "
        "seed does not select.",
    .runs_nccl = true) {
  constexpr const char* kName = "failing";
  std::vector<std::string> functions = {"listen", "connect", "accept", "regMr"};
  std::vector<std::string> transfers = {"isend", "irecv", "test"};
  std::shuffle(functions.begin(), functions.end(), random());
  std::shuffle(transfers.begin(), transfers.end(), random());
  functions.resize(1);
  transfers.resize(2);
  functions.insert(functions.end(), transfers.begin(), transfers.end());
  Environment environment = short_timeouts();
  environment.emplace_back("PLUGFEST_FAILING_BASE", context().nccl.plugin);
  const NcclJob job{
      .ranks = 2, .environment = environment, .plugin = bed::library_folder() + "/nccl/libnccl-net-fails_calls.so"};
  run_job(job, [&](JobRanks& group) {
    if (!nccl::uses_plugin(nccl::summarize(group.log(0)))) skip("NCCL does not use the plugin that fails calls");
    for (const std::string& function : functions) {
      const bool in_transfer = std::find(transfers.begin(), transfers.end(), function) != transfers.end();
      const int victim = static_cast<int>(random_between(0, static_cast<std::uint64_t>(group.size()) - 1));
      if (in_transfer) group.init(kName);
      group.send(victim, nccl::FailCall{function, in_transfer ? static_cast<int>(random_between(0, 15)) : 0});
      group.receive(victim);
      if (in_transfer)
        send_traffic(group, kName, kForever, group.all_ranks());
      else
        group.try_init(kName);
      const nccl::Answer error = last_answer(group, victim);
      expect(!error.ok, [&] {
        return fmt::format("rank {} on {}: {} of the plugin failed, and NCCL reported no error", victim,
                           group.host(victim), function);
      });
      observe(fmt::format("{} failed on rank {}: {}", function, victim, error.text));
      require_abort(group, kName, group.all_ranks(), all_but(group, victim));
    }
    group.init("again");
    require_right(group, "again", {.bytes = 100'000, .seed = random()()});
  });
}

RULE_ON(NcclRule, EE_10, Must, ApiRange::all(),  //
        .title = "lost packets change no result",
        .text = "With 1 % of all packets lost, every element of every operation is right.",
        .source = "InfiniBand RC and TCP retransmit",
        .why = "Networks lose packets. A plugin on an unreliable transport must itself retransmit.",
        .check =
            "Loses 1 % of the packets of every NIC while all operations run with 20 KB and 500 KB, and checks every "
            "element.",
        .blind = "Plugins that do not use the NICs: the rule loses none of their packets.", .runs_nccl = true) {
  require_injector();
  const faults::ActiveFault loss(*context().injector, {.packets = {.loss = 0.01, .seed = random()()},
                                                       .interfaces = faults::host_interfaces(graph())});
  run_job({.ranks = ranks_on_hosts(3)}, [&](JobRanks& group) {
    for (const std::size_t bytes : {20000u, 500000u}) require_all_right(group, "world", bytes);
    group.all(nccl::Destroy{"world"});
  });
}

RULE_ON(NcclRule, EE_11, Must, ApiRange::all(),  //
        .title = "after a link failure results are right, or NCCL reports an error",
        .text =
            "When a link goes down during an operation and stays down, NCCL continues over another link with right "
            "results, or reports an asynchronous error and ncclCommAbort returns. When the link is up again, a new "
            "communicator works.",
        .source = "proxy.cc; init.cc: ncclCommAbort; InfiniBand RC gives up after its retries",
        .why = "A user cannot distinguish a job that neither continues nor fails from a job that computes.",
        .check =
            "Takes the link between the first two hosts down during allreduces, until these end or a rank has an "
            "error; aborts, brings the link up, and runs an allreduce on a new communicator.",
        .blind = "When the error comes within the time limit.",
        .faults = {{"NVIDIA/nccl#1777", "after the loss of a node the job hung"}}, .runs_nccl = true) {
  constexpr int kRounds = 20;
  require_injector();
  const std::optional<faults::Interface> link = link_of_first_hosts(graph());
  if (!link) skip("the first two hosts do not reach each other");
  run_job({.ranks = ranks_on_hosts(3), .environment = short_timeouts()}, [&](JobRanks& group) {
    group.init("idle");  // keeps the plugin loaded: NCCL 2.28.9 does not load one a second time
    start_traffic(group, kRounds);
    std::string error;
    {
      const faults::ActiveFault down(*context().injector, {.kind = faults::Kind::kDown, .interfaces = {*link}});
      error = require_error_and_abort(group, group.all_ranks());
    }
    observe(error.empty() ? "all operations ended right while the link was down" : error);
    group.init("again");
    require_right(group, "again", {.bytes = 100'000, .seed = random()()});
    group.all(nccl::Destroy{"again"});
  });
}

}  // namespace plugfest::conformance
