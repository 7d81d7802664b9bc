// EE rules: NCCL's operations give right results.
#include <fmt/format.h>

#include <algorithm>

#include "conformance/end_to_end/nccl_rule.h"
#include "harness/bed/devices.h"
#include "harness/plugin/inspect.h"
#include "harness/plugin/nccl.h"
#include "harness/plugin/releases.h"

namespace plugfest::conformance {

using nccl::JobRanks;

RULE_ON(NcclRule, EE_03, Must, ApiRange::all(),  //
        .title = "all operations are right on 2, 3, 4 and 8 ranks",
        .text = "Every element of every operation of NCCL is right, for small and large sizes.",
        .source = "nccl-tests; enqueue.cc chooses algorithm, protocol and channels by size and number of ranks",
        .why = "A wrong element is a wrong result of the user's program, and nothing reports it.",
        .check =
            "Runs the seven operations with 1 KB on 2, 3, 4 and 8 ranks, and with 500 KB on 2, 3 and 4 ranks. The "
            "ranks are spread over the hosts. NCCL chooses rings or trees, and LL or Simple. Checks every element.",
        .blind = "LL128, PAT, NVLS and CollNet, and other types than float: see plugfest nccl.", .runs_nccl = true) {
  for (const int ranks : {2, 3, 4, 8}) {
    run_job({.ranks = ranks}, [&](JobRanks& group) {
      require_all_right(group, "world", 1000);
      if (ranks <= 4) require_all_right(group, "world", 500'000);
      group.all(nccl::Destroy{"world"});
    });
  }
}

RULE_ON(NcclRule, EE_05, Must, ApiRange::all(),  //
        .title = "a sender may destroy its communicator at once",
        .text =
            "Data that ncclSend has accepted arrives although the sender destroys its communicator before the receiver "
            "starts to receive.",
        .source = "proxy.cc: ncclProxyStop waits for the operations of proxies; transport/net.cc: sendProxyFree",
        .why =
            "The last operation of a pipeline stage is a send. A plugin that reports a send as done before the data is "
            "on its way loses it when it closes.",
        .check =
            "Sends 100 KB one way, then 300 KB, and destroys the sender's communicator before the receiver asks for "
            "the data. Checks every byte.",
        .blind = "Messages that do not fit into NCCL's buffers: there the sender waits for the receiver anyway.",
        .runs_nccl = true) {
  run_job({.ranks = 2}, [&](JobRanks& group) {
    const auto require_data = [&](const nccl::Answer& answer) {
      expect(answer.ok, [&] { return fmt::format("rank 1: {}", answer.text); });
      expect(answer.wrong == 0,
             [&] { return fmt::format("rank 1 received wrong bytes: {}: {}", answer.wrong, answer.text); });
    };
    const auto require_ok = [&](const nccl::Answer& answer) {
      expect(answer.ok, [&] { return fmt::format("rank 0: {}", answer.text); });
    };
    const std::uint64_t first = random()(), second = random()();
    // The first operation establishes the connections.
    group.send(0, nccl::Send{"world", 1, 100000, first});
    group.send(1, nccl::Receive{"world", 0, 100000, first});
    require_ok(group.receive(0));
    require_data(group.receive(1));

    group.send(0, nccl::Send{"world", 1, 300000, second});
    group.send(0, nccl::Destroy{"world"});
    require_ok(group.receive(0));  // the data is in NCCL's buffers
    group.send(1, nccl::Receive{"world", 0, 300000, second});
    require_data(group.receive(1));
    require_ok(group.receive(0));
    group.send(1, nccl::Destroy{"world"});
    expect(group.receive(1).ok, "rank 1: ncclCommDestroy failed");
  });
}

RULE_ON(NcclRule, EE_08, Must, ApiRange::all(),  //
        .title = "a thousand small operations give right results",
        .text = "Each of a thousand operations that are launched without waiting gives the right result.",
        .source = "enqueue.cc; proxy.cc: operations of one connection follow each other in the proxy's list",
        .why = "Programs launch thousands of small operations before they look at the first result.",
        .check =
            "Launches 1000 allreduces, 1000 sends and receives in a ring, and 1000 broadcasts, without waiting, each "
            "on its own 100 bytes, and checks every element.",
        .blind = "Effects that need more than some thousand messages.", .runs_nccl = true) {
  run_job({}, [&](JobRanks& group) {
    for (const nccl::Operation operation :
         {nccl::Operation::kAllReduce, nccl::Operation::kSendRecv, nccl::Operation::kBroadcast})
      require_right(group, "world", {.operation = operation, .bytes = 100'000, .seed = random()(), .pieces = 1000});
    group.all(nccl::Destroy{"world"});
  });
}

RULE_ON(NcclRule, EE_09, Must, ApiRange::all(),  //
        .title = "sixteen ranks get right results",
        .text = "Sixteen ranks get right results, on sixteen hosts if the topology has them, as fat-tree:4 does.",
        .source = "graph/connect.cc: rings and trees over hosts",
        .why = "In large jobs only, trees have inner ranks with three neighbors, and NICs serve several processes.",
        .check =
            "Runs an allreduce, an allgather and a broadcast on sixteen ranks, spread over the hosts of the run, and "
            "checks every element.",
        .blind = "On a topology with fewer hosts, ranks of one host use shared memory among themselves.",
        .runs_nccl = true) {
  run_job({.ranks = 16}, [&](JobRanks& group) {
    for (const nccl::Operation operation :
         {nccl::Operation::kAllReduce, nccl::Operation::kAllGather, nccl::Operation::kBroadcast})
      require_right(group, "world", {.operation = operation, .bytes = 50000, .root = 15, .seed = random()()});
    group.all(nccl::Destroy{"world"});
  });
}

RULE_ON(NcclRule, EE_01, Must, ApiRange::all().libraries_only(),  //
        .title = "NCCL uses the plugin, in the newest version that both know",
        .text =
            "NCCL 2.28.9 loads the plugin on every rank, takes the newest of the versions 6 to 11 that it exports, and "
            "connects all hosts through it.",
        .source = "plugin/net.cc: ncclNetPluginLoad, ncclNetInit; init.cc: initTransportsRank",
        .why =
            "NCCL does not fail if it cannot use a plugin. It logs a line and uses its own IB or sockets, and the job "
            "is slow.",
        .check =
            "Creates a communicator with a rank in each host, runs an allreduce, and reads NCCL's log: plugin, "
            "version, network, and the transport of each connection between hosts.",
        .blind = "Other releases of NCCL: see LD-04.",
        .faults = {{"NVIDIA/nccl#1091", "a plugin failed on some hosts, which then used another network"}},
        .runs_nccl = true) {
  const int newest = plugin::find_release("2.28.9")->choose(plugin::InterfaceKind::kNet,
                                                            plugin::inspect(context().library).net_apis());
  run_job({.any_network = true}, [&](JobRanks& group) {
    for (int rank = 0; rank < group.size(); ++rank) {
      const nccl::LogSummary summary = nccl::summarize(group.log(rank));
      const std::string who = fmt::format("rank {} on {}", rank, group.host(rank));
      expect(!summary.plugin.empty(), fmt::format("{}: NCCL uses no version of the plugin", who));
      expect(summary.plugin.ends_with(fmt::format(" (v{})", newest)),
             fmt::format("{}: NCCL uses {}, expected v{}", who, summary.plugin, newest));
      expect(nccl::uses_plugin(summary),
             fmt::format("{}: NCCL chose {}, and then fell back to {}", who, summary.plugin, summary.network));
    }
    require_right(group, "world", {.bytes = 65536, .seed = random()()});
    for (int rank = 0; rank < group.size(); ++rank) {
      const nccl::LogSummary summary = nccl::summarize(group.log(rank));
      for (const nccl::LogSummary::Connection& one : summary.connections) {
        if (one.to == nccl::LogSummary::Connection::kSwitches || group.host(one.from) == group.host(one.to)) continue;
        expect(one.transport.starts_with("NET/" + summary.network),
               fmt::format("rank {} reaches rank {} by {}, expected NET/{}", one.from, one.to, one.transport,
                           summary.network));
      }
      if (rank == 0) observe(nccl::choices_text(summary));
    }
  });
}

RULE_ON(NcclRule, EE_02, Must, ApiRange::all().libraries_only(),  //
        .title = "NCCL falls back to sockets on hosts without devices",
        .text =
            "If the plugin finds no device, or its init fails, NCCL runs with its own sockets. The plugin leaves "
            "nothing behind that prevents that.",
        .source = "plugin/net.cc: ncclNetInit tries external plugins, IB and Socket in turn; NCCL_NET names one",
        .why =
            "One image of a cluster's software serves hosts with and without the hardware. Without the fall-back, jobs "
            "on hosts without it fail.",
        .check =
            "Hides the devices of all NIC kinds by environment variables, runs all operations on all hosts, and reads "
            "in NCCL's log that it used sockets.",
        .blind = "Plugins whose devices the harness cannot hide: the rule does not apply to them.",
        .faults = {{"NVIDIA/nccl#2200", "a context leaked when NCCL fell back after init"}}, .runs_nccl = true) {
  Environment environment = bed::without_devices();
  std::erase_if(environment, [](const auto& one) { return one.first == "NCCL_SOCKET_IFNAME"; });  // for the bootstrap
  run_job({.environment = environment, .any_network = true}, [&](JobRanks& group) {
    const nccl::LogSummary summary = nccl::summarize(group.log(0));
    if (nccl::uses_plugin(summary))
      not_applicable(fmt::format("network {}: it has devices that the harness cannot hide", summary.network));
    expect(summary.network == "Socket", fmt::format("NCCL uses {}, expected Socket", summary.network));
    require_all_right(group, "world", 20000);
    group.all(nccl::Destroy{"world"});
  });
}

RULE_ON(NcclRule, EE_04, Must, ApiRange::all(),  //
        .title = "communicators live and end independently",
        .text =
            "Several communicators of the same processes, and parts split from them, work at the same time and are "
            "destroyed in any order, and new ones can be created.",
        .source = "init.cc: ncclCommSplit, ncclCommDestroy; plugin/net.cc: ncclNetFinalize, references to plugins",
        .why = "Programs with tensor, pipeline and data parallelism have a communicator for each, and rebuild some.",
        .check =
            "Creates a second communicator, splits both with the same and the reverse order of ranks, and runs "
            "allreduces on all. Destroys them in a random order with an allreduce on the others after each, and "
            "creates one more before the last.",
        .blind =
            "Operations of several communicators in flight at the same moment. A second load of the library, because "
            "NCCL 2.28.9 loads it only once; LD-10 loads it again.",
        .runs_nccl = true) {
  run_job({.ranks = ranks_on_hosts(3)}, [&](JobRanks& group) {
    const auto split = [&](const char* from, bool reverse, const char* to) {
      for (int rank = 0; rank < group.size(); ++rank)
        group.send(rank, nccl::Split{from, 0, reverse ? -rank : rank, to});
      for (int rank = 0; rank < group.size(); ++rank) {
        const nccl::Answer answer = group.receive(rank);
        expect(answer.ok, [&] { return fmt::format("rank {}: {}", rank, answer.text); });
      }
    };
    std::size_t bytes = 1000;
    const auto use = [&](const std::string& communicator) {
      bytes = bytes * 7 % 500'000 + 4;
      require_right(group, communicator, {.bytes = bytes, .iterations = 2, .seed = random()()});
    };
    group.init("other");
    split("world", false, "same");
    split("other", true, "reverse");
    std::vector<std::string> alive = {"world", "other", "same", "reverse"};
    std::for_each(alive.begin(), alive.end(), use);
    for (bool created = false; !alive.empty();) {
      // Once its last communicator is destroyed, NCCL 2.28.9 ignores NCCL_NET_PLUGIN and loads libnccl-net.so.
      if (alive.size() == 1 && !created) {
        group.init("again");
        alive.emplace_back("again");
        use("again");
        created = true;
      }
      const auto victim = alive.begin() + static_cast<std::ptrdiff_t>(random_between(0, alive.size() - 1));
      group.all(nccl::Destroy{*victim});
      alive.erase(victim);
      std::for_each(alive.begin(), alive.end(), use);
    }
  });
}

}  // namespace plugfest::conformance
