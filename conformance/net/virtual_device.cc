// DP rules: virtual devices.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/net/script/flow.h"
#include "conformance/rules/rule_body.h"

namespace plugfest::conformance {

RULE(
    DP_27, Should, ApiRange::from(9),  //
    .title = "makeVDevice adds a device or changes nothing",
    .text =
        "makeVDevice with a list of devices either fails, and the devices stay as they are, or returns the old number "
        "of devices as the index of a new one. The new device lists its members in vProps. If it has several, its "
        "name is unique. It takes connections as other devices do. A list with no member, too many, the same one twice "
        "or an unknown one is refused.",
    .source = "graph/topo.cc: ncclTopoMakeVnic, ncclTopoMakePciParent, even for a single device",
    .why = "If a refused list adds a device, NCCL uses an index without a device, or counts a NIC twice.",
    .check =
        "Merges one device, all devices, and lists that must be refused. Makes a virtual device of a virtual one, "
        "which may fail. Connects a virtual device of one member to and from another host, and sends a message.",
    .blind = "Messages over several members: which ones lead to which host is the plugin's matter.") {
  if (!near_rank().has_function("makeVDevice")) not_applicable("the plugin has no makeVDevice");
  const int devices = near_rank().devices();
  std::vector<int> all(static_cast<std::size_t>(std::min(devices, 4)));
  std::iota(all.begin(), all.end(), 0);
  for (const std::vector<int>& members : {std::vector<int>{0}, all}) {
    probe([&] {
      Rank rank = near_rank();
      const IntOutcome outcome = rank.try_make_vdevice(members);
      const int count = rank.devices();
      const int expected = devices + (outcome.ok() ? 1 : 0);
      expect(count == expected, fmt::format("{} returned {}, and devices then wrote {}, expected {}", outcome.call,
                                            result_name(outcome.code), count, expected));
      if (!outcome.ok()) return;
      expect(outcome.value == devices, fmt::format("{} wrote index {}, expected {}, the old number of devices",
                                                   outcome.call, outcome.value, devices));
      const Properties made = rank.properties(Device{outcome.value});
      expect(made.v_props == members,
             fmt::format("{}: vProps of the new device lists {}, expected {}", outcome.call, made.v_props, members));
      for (int index = 0; index < devices && members.size() > 1; ++index)
        expect(rank.properties(Device{index}).name != made.name,
               fmt::format("{}: the new device has the name of device {}: {}", outcome.call, index, made.name));
    });
  }
  struct Refused {
    std::string_view why;
    std::vector<int> members;
    std::optional<int> count = std::nullopt;
  };
  const int most = api() < 12 ? 4 : 8;  // members in vProps
  const Refused refused[] = {{"it has no member", {}},
                             {"its number of members is negative", {0}, -1},
                             {"it has more members than its structure", std::vector<int>(8, 0), most + 1},
                             {"it has a member twice", {0, 0}},
                             {"it has a negative member", {-1}},
                             {"it has a member that does not exist", {0, devices + 7}},
                             {"it has a member that does not exist", {1 << 20}}};
  std::size_t next = 0;
  // A breach ends the part: the next one continues with the next list, in a new process.
  while (next < std::size(refused)) {
    probe([&] {
      Rank rank = near_rank();
      while (next < std::size(refused)) {
        const Refused& list = refused[next++];
        const IntOutcome outcome = rank.try_make_vdevice(list.members, list.count);
        expect(!outcome.ok(),
               [&] { return fmt::format("{} returned Success, expected an error: {}", outcome.call, list.why); });
        const int count = rank.devices();
        expect(count == devices, [&] {
          return fmt::format("{} returned {}, and devices then wrote {}, expected {}", outcome.call,
                             result_name(outcome.code), count, devices);
        });
      }
      // A virtual device as the member of another one: any result.
      const IntOutcome single = rank.try_make_vdevice({0});
      if (single.ok()) rank.try_make_vdevice({0, single.value});
      rank.devices();
    });
  }
  probe([&] {
    Endpoint merged = near_endpoint();
    const IntOutcome outcome = merged.rank.try_make_vdevice({merged.device.index});
    if (!outcome.ok()) return;
    merged.device = Device{outcome.value};
    connect_and_deliver(merged, far_endpoint(), random()());
    connect_and_deliver(far_endpoint(), merged, random()());
  });
}

RULE(DP_28, Should, ApiRange::from(9),  //
     .title = "the members of a device have properties",
     .text =
         "getProperties succeeds for each device that vProps of another device lists, even when makeVDevice has merged "
         "them.",
     .source = "graph/topo.cc: ncclTopoGetVNicParent",
     .why = "NCCL asks for the properties of all members to place a merged device, and init fails if one has none.",
     .check = "Merges all devices if the plugin has makeVDevice, and asks for the properties of all members.",
     .blind = "Members that are not devices, which DP-17 finds.") {
  probe([&] {
    Rank rank = near_rank();
    std::vector<int> all(static_cast<std::size_t>(std::min(rank.devices(), 4)));
    std::iota(all.begin(), all.end(), 0);
    if (all.size() > 1 && rank.has_function("makeVDevice")) rank.try_make_vdevice(all);
    const int devices = rank.devices();
    for (int index = devices; index-- > 0;) {
      for (const int member : rank.properties(Device{index}).v_props) {
        if (member < 0 || member >= devices) continue;  // DP-17
        const PropertiesOutcome properties = rank.try_properties(Device{member});
        expect(properties.ok(), fmt::format("{} returned {}, expected Success: vProps of device {} lists it",
                                            properties.call, result_name(properties.code), index));
      }
    }
  });
}

RULE(
    DP_29, Should, ApiRange::from(9),  //
    .title = "merged devices may list their members in any order",
    .text =
        "Two hosts may merge the same two networks in opposite orders. Their virtual devices connect, and messages of "
        "every size arrive with the right bytes.",
    .source =
        "graph/topo.cc: ncclTopoAutoMerge lists the members in the order of the plugin's devices on this host; nothing "
        "compares the orders of two hosts",
    .why =
        "Hosts may find their NICs in different orders. A plugin that pairs the members by their position then "
        "connects NICs that do not reach each other, or exchanges the parts of a message.",
    .check =
        "Merges the devices of two links, in the same order at both hosts and then in opposite orders. Connects the "
        "virtual devices in both directions and sends messages of 1 byte to 4 MiB.",
    .blind = "Plugins that refuse to merge these devices, and lost bandwidth.",
    .faults = {{"NVIDIA/nccl#2244", "net_ib paired the members of merged NICs by position, across planes"}},
    .two_links = true) {
  const bed::RankPath path{context().ranks.interfaces[0][1], context().ranks.interfaces[1][0]};
  const auto second = context().injector ? second_path(context().injector->graph(), path) : std::nullopt;
  if (!second) not_applicable("the hosts have one link to each other: --topology pair:links=2 has two");
  // The devices of both links at a rank; the device of the rule's path is first.
  const auto devices = [&](std::size_t rank, std::size_t peer, const std::string& other) {
    return std::vector<int>{endpoint(rank, peer).device.index,
                            context().lease->endpoint(context().ranks.ranks[rank], other).device.index};
  };
  for (const bool opposite : {false, true}) {
    const auto connect_merged = [&] {
      if (!near_rank().has_function("makeVDevice")) not_applicable("the plugin has no makeVDevice");
      std::vector<int> at_near = devices(0, 1, second->near), at_far = devices(1, 0, second->far);
      if (opposite) std::reverse(at_far.begin(), at_far.end());
      const auto merge = [&](Rank rank, const std::vector<int>& members) {
        const IntOutcome outcome = rank.try_make_vdevice(members);
        if (!outcome.ok()) not_applicable(fmt::format("{} returned {}", outcome.call, result_name(outcome.code)));
        return Endpoint{rank, Device{outcome.value}};
      };
      const Endpoint near = merge(near_rank(), at_near), far = merge(far_rank(), at_far);
      for (const auto& [from, to] : {std::pair(near, far), std::pair(far, near)}) {
        const Connection connection = connect(from, to);
        for (const std::size_t size : {1u, 1000u, 65'536u, 1'000'003u, 4u << 20})
          deliver(from, to, connection, {.size = size, .seed = random()()});
      }
    };
    probe(connect_merged, [&] {
      return fmt::format("two merged devices, with {} on both hosts",
                         opposite ? "opposite orders of their members" : "the same order of their members");
    });
  }
}

}  // namespace plugfest::conformance
