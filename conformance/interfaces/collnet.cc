// Rules of CollNet: symbol, init, devices and their properties, listen.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/interfaces/collnet_group.h"
#include "conformance/rules/library_check.h"

namespace plugfest::conformance {

RULE(CO_01, Must, ApiRange::coll_net(),  //
     .title = "init and devices work as in a net",
     .text = "If init and devices succeed, devices writes the number of adapters, which is 0 to 64.",
     .source = "plugin/net.cc: ncclCollNetInit; transport/coll_net.cc: sharedResources",
     .why =
         "A number that is not written is uninitialized memory, and NCCL indexes arrays of 64 entries by the device "
         "without a check.",
     .check = "Loads the library in a fresh process, calls init, presets *ndev to -7, and calls devices.",
     .blind = "Adapters that exist and are not counted.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  const CallOutcome init = rank.try_call("init", {{"commId", 1}});
  if (!init.ok())
    not_applicable(fmt::format("{} returned {}: NCCL continues without CollNet", init.call, result_name(init.code)));
  if (init.has("*ctx") && init.untouched("*ctx")) observe(fmt::format("{} stored no context", init.call));
  const IntOutcome devices = rank.try_devices(-7);
  if (!devices.ok())
    not_applicable(
        fmt::format("{} returned {}: NCCL continues without CollNet", devices.call, result_name(devices.code)));
  expect(!devices.untouched,
         fmt::format("{} returned Success and did not write *ndev (still -7), expected 0 to 64", devices.call));
  expect(devices.value >= 0 && devices.value <= 64,
         fmt::format("{} wrote *ndev = {}, expected 0 to 64", devices.call, devices.value));
}

RULE_ON(
    CollNetRule, CO_02, Must, ApiRange::coll_net(),  //
    .title = "listen writes a handle and opens a listener",
    .text =
        "listen succeeds for every device without a peer, writes a handle of at most 128 bytes and stores a listener, "
        "which closeListen closes. A device can have several listeners at a time.",
    .source = "transport/coll_net.cc: sharedListen",
    .why = "NCCL sends the handle to all ranks. It listens again on a device whose earlier listener has not connected.",
    .check = "Listens twice on each device, with the handle in front of a guard page, and closes both listeners.",
    .blind = "Whether a peer can connect to the handle.") {
  Rank rank = rank_with_devices();
  const int devices = rank.devices();
  for (int device = 0; device < devices; ++device) {
    std::vector<std::uint64_t> listeners;
    for (int i = 0; i < 2; ++i) {
      const CallOutcome listening = rank.call("listen", {{"dev", device}, {"handle", 0x5a}});
      expect(!listening.untouched("*listenComm") && listening.pointer("*listenComm") != 0,
             fmt::format("{} succeeded and stored no listener", listening.call));
      expect(!listening.untouched("handle"), fmt::format("{} succeeded and wrote no handle", listening.call));
      listeners.push_back(listening.pointer("*listenComm"));
    }
    for (const std::uint64_t listener : listeners) rank.call("closeListen", {{"listenComm", listener}});
  }
}

RULE_ON(CollNetRule, CO_07, Should, ApiRange::coll_net(),  //
        .title = "reduceSupport always gives the same answer, 0 or 1",
        .text =
            "For each of the 12 data types and the operations sum, prod, max and min, reduceSupport succeeds and "
            "writes 0 or 1. A later call writes the same. Values outside these ranges do no harm.",
        .source = "transport/coll_net.cc: ncclCollNetReduceSupport; init.cc: collNetSupportMatrix",
        .why = "NCCL builds a table from the answers once, and merges the tables of all ranks.",
        .check =
            "Asks for all pairs twice, with *supported preset to another value each time, and for some invalid values.",
        .blind = "Whether the reduction gives the right result, and answers that a connection changes.") {
  Rank rank = rank_with_devices();
  constexpr int kTypes = 12, kOps = 4;
  for (int type = 0; type < kTypes; ++type) {
    for (int op = 0; op < kOps; ++op) {
      const auto ask = [&](int preset) {
        const CallOutcome answer =
            rank.call("reduceSupport", {{"dataType", type}, {"redOp", op}, {"*supported", preset}});
        const int supported = answer.integer("*supported");
        expect(supported == 0 || supported == 1, fmt::format("{} wrote {}, expected 0 or 1", answer.call, supported));
        return supported;
      };
      const int first = ask(-7), second = ask(-8);
      expect(first == second, fmt::format("rank {}: reduceSupport(type {}, op {}) wrote {}, then {}", rank.name(), type,
                                          op, first, second));
    }
  }
  rank.try_call("reduceSupport", {{"dataType", 200}, {"redOp", 0}});
  rank.try_call("reduceSupport", {{"dataType", 0}, {"redOp", 200}});
}

RULE_ON(CollNetRule, CO_19, Must, ApiRange::coll_net(),  //
        .title = "each symbol is an exported struct of its version's size",
        .text =
            "ncclCollNetPlugin_vN is a data object with default visibility and has the size of that version's struct. "
            "After init every function is set, except regMrDmaBuf, iallgather, ireducescatter and makeVDevice.",
        .source = "plugin/net/coll_net_v*.cc; NCCL's headers ext-net/example/nccl/net_v*.h",
        .why = "NCCL reads the struct of its own headers at the symbol and calls its functions without a check.",
        .check = "Reads the ELF symbols of the file without loading it, and the functions of the struct after init.",
        .blind = "A function that is set and has other parameters.") {
  const auto flaw = flaw_of_symbols(context().library, plugin::InterfaceKind::kCollNet);
  if (flaw) broken(*flaw);
  Rank rank = ready_rank();
  if (rank.devices() == 0) return;  // NCCL then calls no other function
  for (const std::string& function : missing_functions(rank)) {
    broken(
        fmt::format("rank {}: collnet v{}: {} is NULL after init, expected a function", rank.name(), api(), function));
  }
}

RULE_ON(
    CollNetRule, CO_20, Must, ApiRange::coll_net(),  //
    .title = "getProperties describes every device",
    .text =
        "getProperties succeeds for every device and writes its name, guid, ptrSupport, speed and port, and from v9 on "
        "maxCollBytes, which is 1 byte to 1 TiB. The name is a non-empty string.",
    .source = "transport/coll_net.cc: sendSetup, recvSetup; graph/topo.cc: ncclTopoProcessNet",
    .why =
        "The struct is uninitialized stack memory. NCCL merges the CollNet device with the net device of the same "
        "name, and refuses the connection if maxCollBytes is out of range.",
    .check = "Calls getProperties twice for each device on memory with two different fills, and looks at these fields.",
    .blind = "Other fields, and values that are plausible and wrong.") {
  Rank rank = rank_with_devices();
  for_each_device(rank, [&](int index, const PropertiesOutcome& first, const std::string&) {
    const PropertiesOutcome second = rank.try_properties(Device{index}, 0xa5);
    require_success(second);
    for (const char* field : {"guid", "ptrSupport", "speed", "port"})
      expect(first.integer(field) == second.integer(field),
             fmt::format("{} did not write {}, expected every field to be written", first.call, field));
    expect(first.name.has_value() && !first.name->empty(),
           fmt::format("{} wrote no name, expected a string", first.call));
    if (!first.has("maxCollBytes")) return;
    const std::int64_t most = first.integer("maxCollBytes");
    expect(most > 0 && most <= (std::int64_t{1} << 40),
           fmt::format("{} wrote maxCollBytes = {}, expected 1 to {}", first.call, most, std::int64_t{1} << 40));
  });
}

RULE_ON(
    CollNetRule, DP_24, Should, ApiRange::coll_net(),  //
    .title = "each device has the name of a device of the net",
    .text = "If the library also exports a net, each device of CollNet has the name of a device of the net.",
    .source = "graph/topo.cc: ncclTopoProcessNet",
    .why =
        "NCCL finds the adapter of a CollNet device by its name. With another name it takes the device for a second "
        "adapter.",
    .check =
        "Reads the names of all devices of CollNet, and the names in the newest version of the net in a new process.",
    .blind = "A library without a net; GI-35 checks GIN and RMA.") {
  if (plugin::inspect(context().library).net_apis().empty()) not_applicable("the library exports no net");
  Rank rank = ready_rank();
  const std::vector<std::string> here = device_names(rank);
  on_new_ranks([&] {
    Rank other = near_rank({.state = RankState::kBare});
    other.load(0, plugin::InterfaceKind::kNet);
    other.init({.context = Preset::kNull});
    const std::vector<std::string> there = device_names(other);
    for (const std::string& name : here)
      expect(std::find(there.begin(), there.end(), name) != there.end(),
             fmt::format("rank {}: CollNet has a device {}, and the net has {}, expected one of the same name",
                         rank.name(), name, there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", "))));
  });
}

}  // namespace plugfest::conformance
