// EE rules: which network NCCL chooses.
#include <fmt/format.h>

#include "conformance/end_to_end/nccl_rule.h"
#include "harness/bed/devices.h"
#include "harness/plugin/inspect.h"

namespace plugfest::conformance {

using nccl::RankGroup;

namespace {

/// The newest version of the net interface that NCCL 2.28.9 knows.
constexpr int kNewestNetOfNccl = 11;

}  // namespace

RULE_ON(
    NcclRule, EE_01, Must, ApiRange::all().libraries_only(),  //
    .title = "NCCL uses the plugin, in the newest version that both know",
    .text =
        "NCCL 2.28.9 loads the plugin on every rank, takes the newest of the versions 6 to 11 that it exports, and "
        "connects all hosts through it.",
    .source = "plugin/net.cc: ncclNetPluginLoad, ncclNetInit; init.cc: initTransportsRank",
    .why =
        "NCCL does not fail if it cannot use a plugin. It logs a line and uses its own IB or sockets, and the job is "
        "slow.",
    .check =
        "Creates a communicator with a rank in each host, runs an allreduce, and reads NCCL's log: plugin, version, "
        "network, and the transport of each connection between hosts.",
    .blind = "Other releases of NCCL: see LD-04.",
    .faults = {{"NVIDIA/nccl#1091", "a plugin failed on some hosts, which then used another network"}},
    .runs_nccl = true) {
  int newest = 0;
  for (const int api : plugin::inspect(context().library).net_apis())
    if (api <= kNewestNetOfNccl) newest = api;
  run_job({.any_network = true}, [&](RankGroup& group) {
    for (int rank = 0; rank < group.size(); ++rank) {
      const nccl::LogSummary summary = nccl::summarize(group.log(rank));
      const std::string who = fmt::format("rank {} on {}", rank, group.host(rank));
      expect(!summary.plugin.empty(), fmt::format("{}: NCCL took no version of the plugin", who));
      expect(summary.plugin.ends_with(fmt::format(" (v{})", newest)),
             fmt::format("{}: NCCL took {}, expected v{}", who, summary.plugin, newest));
      expect(uses_plugin(summary, true),
             fmt::format("{}: NCCL took {}, and then fell back to {}", who, summary.plugin, summary.network));
    }
    require_right(group, "world", {.bytes = 65536, .seed = random()()});
    for (int rank = 0; rank < group.size(); ++rank) {
      const nccl::LogSummary summary = nccl::summarize(group.log(rank));
      for (const nccl::LogSummary::Connection& one : summary.connections) {
        if (group.host(one.from) == group.host(one.to)) continue;
        expect(one.transport.starts_with("NET/" + summary.network),
               fmt::format("rank {} reaches rank {} by {}, expected NET/{}", one.from, one.to, one.transport,
                           summary.network));
      }
      if (rank == 0) observe(nccl::choices_text(summary));
    }
  });
}

RULE_ON(
    NcclRule, EE_02, Must, ApiRange::all().libraries_only(),  //
    .title = "NCCL falls back to sockets on hosts without devices",
    .text =
        "Where the plugin finds no device, or its init fails, NCCL runs with its own sockets. The plugin leaves "
        "nothing "
        "behind that prevents that.",
    .source = "plugin/net.cc: ncclNetInit tries external plugins, IB and Socket in turn; NCCL_NET names one",
    .why = "One image of a cluster's software serves hosts with and without the hardware.",
    .check =
        "Hides the devices of all NIC kinds by environment variables, runs all operations on all hosts, and reads in "
        "NCCL's log that it used sockets.",
    .blind = "Plugins whose devices the harness cannot hide: the rule does not apply to them.",
    .faults = {{"NVIDIA/nccl#2200", "a context leaked when NCCL fell back after init"}}, .runs_nccl = true) {
  control::Environment environment = bed::without_devices();
  std::erase_if(environment, [](const auto& one) { return one.first == "NCCL_SOCKET_IFNAME"; });  // for the bootstrap
  run_job({.environment = environment, .any_network = true}, [&](RankGroup& group) {
    const nccl::LogSummary summary = nccl::summarize(group.log(0));
    if (uses_plugin(summary, true))
      not_applicable(fmt::format("network {}: it has devices that the harness cannot hide", summary.network));
    expect(summary.network == "Socket", fmt::format("NCCL uses {}, expected Socket", summary.network));
    require_all_right(group, "world", 20000);
    group.all("destroy world");
  });
}

}  // namespace plugfest::conformance
