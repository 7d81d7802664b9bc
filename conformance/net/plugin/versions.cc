// Rules that compare the exported versions of a library.
#include <fmt/format.h>

#include "conformance/net/script/message.h"
#include "conformance/rules/rule_body.h"
#include "harness/control/call.h"

namespace plugfest::conformance {

using control::Connection;
using control::Device;
using control::Endpoint;
using control::Rank;
using control::RankState;

namespace {

/// Loads and initialises another version. Returns the device with this name.
Endpoint start_version(Rank rank, int version, const std::string& device) {
  rank.load(version);
  rank.init({.context = control::Preset::kNull});
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) {
    if (rank.properties(Device{index}).name == device) return {rank, Device{index}};
  }
  throw Broken(fmt::format("rank {}: none of its {} devices is named \"{}\"", rank.name(), devices, device));
}

}  // namespace

RULE(
    LD_05, Must, ApiRange::all().libraries_only(),  //
    .title = "every exported version works",
    .text = "Each version of the interface that the library exports can be loaded alone, initialised and used.",
    .source = "plugin/net.cc: ncclNetPluginLoad stops at the newest version that it knows, even if its init fails",
    .why =
        "Which version NCCL takes depends on its release. It has no fall-back to an older version of the same library.",
    .check =
        "Starts each other version in new processes, connects two ranks and sends one message. plugfest run --api all "
        "applies all rules to each version.",
    .blind = "Faults of another version that one message does not show.") {
  const Endpoint sender = near_endpoint(), receiver = far_endpoint();
  const auto name_of = [](const Endpoint& endpoint) { return Rank(endpoint.rank).properties(endpoint.device).name; };
  const std::string sender_device = name_of(sender), receiver_device = name_of(receiver);
  for (const int version : sender.rank.library().apis) {
    if (version == api()) continue;
    on_new_ranks([&] {
      try {
        const Endpoint from = start_version(near_rank({.state = RankState::kBare}), version, sender_device);
        const Endpoint to = start_version(far_rank({.state = RankState::kBare}), version, receiver_device);
        const Connection connection = control::connect(from, to);
        deliver(from, to, connection, {.size = 1000, .seed = random()()});
      } catch (const control::CallFailed& failure) {
        broken(fmt::format("net v{}: {}", version, failure.what()));
      } catch (const Broken& failure) {
        broken(fmt::format("net v{}: {}", version, failure.what()));
      }
    });
  }
}

RULE(DP_25, Should, ApiRange::all().libraries_only(),  //
     .title = "all versions report the same devices",
     .text =
         "Number, name, pciPath, guid, port and speed of the devices are the same in each exported version. Other "
         "properties may differ, such as maxRecvs.",
     .source = "graph/topo.cc; plugins with one implementation behind several versions",
     .why = "An upgrade of NCCL changes the version, and with it the topology that NCCL sees.",
     .check = "Compares the properties of each other version, read in a new process, with those of this version.") {
  Rank rank = near_rank();
  std::vector<control::Properties> expected;
  const int devices = rank.devices();
  for (int index = 0; index < devices; ++index) expected.push_back(rank.properties(Device{index}));
  for (const int version : rank.library().apis) {
    if (version == api()) continue;
    on_new_ranks([&] {
      Rank other = near_rank({.state = RankState::kBare});
      other.load(version);
      other.init({.context = control::Preset::kNull});
      const int count = other.devices();
      expect(count == devices, fmt::format("net v{} has {} devices and v{} {}, expected the same devices", version,
                                           count, api(), devices));
      for (int index = 0; index < count; ++index) {
        const control::Properties here = other.properties(Device{index});
        const control::Properties& there = expected[static_cast<std::size_t>(index)];
        const auto same = [&](const char* field, const auto& seen, const auto& wanted) {
          expect(seen == wanted, [&] {
            return fmt::format("device {}: {} is {} in net v{} and {} in v{}, expected the same value", index, field,
                               seen, version, wanted, api());
          });
        };
        same("name", here.name, there.name);
        same("pciPath", here.pci_path.value_or("NULL"), there.pci_path.value_or("NULL"));
        same("guid", here.guid, there.guid);
        same("port", here.port, there.port);
        same("speed", here.speed_mbit_per_second, there.speed_mbit_per_second);
      }
    });
  }
}

}  // namespace plugfest::conformance
