// Rules of GIN and RMA: symbols, devices, connect, close.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/interfaces/interface_rule.h"
#include "conformance/rules/library_check.h"

namespace plugfest::conformance {

using namespace control;

RULE(GI_01, Must, ApiRange::one_sided(),  //
     .title = "contexts of init are independent",
     .text =
         "init can be called again, even for the same communicator. finalize of one context, which is NULL if init "
         "stored none, leaves the others usable, in any order, even immediately after getProperties.",
     .source = "plugin/gin.cc and plugin/rma.cc: one init of the communicator and one of the GIN proxy",
     .why = "NCCL 2.30.7 calls init of an RMA plugin twice for one communicator, and finalizes the first one early.",
     .check = "Calls init three times, finalizes the second and the first context, and lists devices after each call.",
     .blind = "Contexts whose collComms are open.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  std::vector<std::uint64_t> contexts;
  for (const int id : {1, 1, 2}) {
    const CallOutcome init = rank.try_call("init", {{"commId", id}});
    if (!init.ok())
      not_applicable(
          fmt::format("{} returned {}: NCCL continues without the interface", init.call, result_name(init.code)));
    const bool stored = !init.untouched("*ctx");
    contexts.push_back(stored ? init.pointer("*ctx") : 0);  // NCCL's variable is NULL before the call
    if (!stored) observe(init.call + " stored no context");
  }
  const int devices = rank.devices();
  if (devices > 0) require_success(rank.try_properties(Device{0}));
  for (const std::size_t closed : {1u, 0u}) {
    rank.call("finalize", {{"ctx", contexts[closed]}});
    const int now = rank.devices();
    expect(now == devices, [&] {
      return fmt::format("rank {}: devices() wrote {} after finalize of one of three contexts, and {} before",
                         rank.name(), now, devices);
    });
  }
}

RULE_ON(OneSidedRule, GI_02, Must, ApiRange::one_sided(),  //
        .title = "connect does not need its context",
        .text =
            "connect may get another context than the one of its own init: NULL for GIN v11, and the net plugin's "
            "context from v13 on. It takes what it needs from the listener.",
        .source =
            "plugin/gin.cc of NCCL 2.28.9: the context of the second communicator is NULL; rma/rma_proxy.cc of 2.30.3 "
            "to 2.32.3: connect(comm->netContext)",
        .why = "A plugin that uses the context crashes, or uses another plugin's memory.",
        .check = "Connects with such a context, and puts data.",
        .blind = "On rank 0, a context that is unmapped memory.") {
  const std::vector<Rank> ranks = ranks_with_data();
  if (api() == 12) not_applicable("NCCL passes the context of init");
  // All ranks get the same context, which is memory of rank 0 only.
  const Memory zeros = near_rank().allocate(4096);
  OneSidedGroup group(ranks, {.connect = {{"ctx", api() == 11 ? 0 : zeros.address()}}});
  group.require_puts(100, random()());
}

RULE_ON(OneSidedRule, GI_03, Must, ApiRange::one_sided(),  //
        .title = "connect joins all ranks, and a rank with itself",
        .text =
            "connect succeeds on all ranks even if some call it later, and stores a collComm on all of them. It may "
            "wait for the others. A rank is also connected with itself. It keeps no pointer to the handles.",
        .source =
            "gin/gin_host.cc: ncclGinConnectOnce calls connect on the main thread, and frees the handles after it; "
            "ranks exchange memory handles before they put data",
        .why = "Device code puts to every rank of the communicator, its own included.",
        .check =
            "Connects all ranks, the last one 100 ms after the others, overwrites the handles, closes the listeners, "
            "and puts 1,000 bytes from each rank to each rank.",
        .blind = "Delays of more than 100 ms.", .ranks = 3, .most_ranks = 4) {
  OneSidedGroup group = connected({.lateness = std::chrono::milliseconds(100)});
  group.require_puts(1000, random()());
}

RULE_ON(OneSidedRule, GI_04, Must, ApiRange::one_sided(),  //
        .title = "a device carries four collComms", .text = "connect succeeds four times on the same devices.",
        .source = "gin/gin_host.cc: up to 4 connections, even on one device; host RMA has its own",
        .why = "NCCL opens up to four collComms of a communicator on one device.",
        .check = "Connects the ranks four times, puts data on each collComm, and closes the second before the others.",
        .blind = "Traffic on all of them at the same time.") {
  const std::vector<Rank> ranks = ranks_with_data();
  std::vector<OneSidedGroup> groups;
  for (int i = 0; i < 4; ++i) groups.emplace_back(ranks);
  for (OneSidedGroup& group : groups) group.require_puts(100, random()());
  groups[1].close();
  groups[3].require_puts(100, random()(), "after another collComm was closed");
}

RULE_ON(
    OneSidedRule, GI_15, Must, ApiRange::one_sided(),  //
    .title = "a collComm closes with requests in flight",
    .text =
        "When a job is aborted, NCCL calls destroyContext, deregMrSym and closeColl although requests are in flight. "
        "All of them return Success. destroyContext is missing if the context was never created.",
    .source = "gin/gin_host.cc: ncclGinHostFinalize after an abort",
    .why = "If the end of a job fails or crashes, users see that instead of the reason of the abort.",
    .check =
        "Posts 16 puts of a megabyte, tests none of them, and destroys the context, deregisters the memory and closes "
        "the collComm. Then connects again, puts data, and closes a collComm whose context still exists.",
    .blind = "Calls of other threads at the same time.") {
  const std::vector<Rank> ranks = ranks_with_data();
  {
    OneSidedGroup group(ranks);
    const Window window = group.window(1 << 20);
    for (int i = 0; i < 16; ++i) Operation(group[0], "iput", put_arguments({window}, {window}, 1 << 20, 0, 1)).post();
    for (std::size_t i = 0; i < group.size(); ++i) {
      if (group[i].context() != 0) group[i].call("destroyContext");
      group[i].call("deregMrSym", {{"mhandle", window.mhandles[i]}});
      group[i].call("closeColl");
    }
  }
  OneSidedGroup group(ranks);
  group.require_puts(1000, random()(), "after a collComm was closed with requests in flight");
  for (std::size_t i = 0; i < group.size(); ++i) group[i].call("closeColl");
}

RULE_ON(OneSidedRule, GI_16, Must, ApiRange::one_sided(),  //
        .title = "maxRecvs is a power of two",
        .text = "32 times maxRecvs, the number of requests in flight to each rank, is a power of two.",
        .source = "gin/gin_host_proxy.cc: indexes its queue with a mask",
        .why = "NCCL uses wrong entries of its queue if maxRecvs is not a power of two.",
        .check = "Reads maxRecvs of every device.",
        .faults = {{"aws/aws-ofi-nccl#1270", "maxRecvs made NCCL's index mask wrong"}}) {
  for_each_device(all_ranks().front(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const auto receives = static_cast<std::uint64_t>(properties.integer("maxRecvs"));
    expect(receives > 0 && receives < 1024 && (receives & (receives - 1)) == 0,
           fmt::format("{} wrote maxRecvs = {}, expected a power of two", call, receives));
  });
}

RULE_ON(OneSidedRule, GI_21, Must, ApiRange::one_sided(),  //
        .title = "the device type is one that NCCL uses",
        .text =
            "netDeviceType of every device is 2, NCCL_NET_DEVICE_GIN_PROXY. For RMA it may also be 0, "
            "NCCL_NET_DEVICE_HOST. From GIN v14 on it may also be 3 to 5, with which the GPU drives the NIC.",
        .source = "plugin/gin.cc: chooses the back end by netDeviceType of device 0",
        .why = "With another type NCCL expects other code on the GPU, or uses no GIN.",
        .check = "Reads netDeviceType of every device.",
        .faults = {{"aws/aws-ofi-nccl#1301", "a vendored header gave a device type another number"}}) {
  const bool is_rma = context().interface == plugin::InterfaceKind::kRma;
  const char* const others = is_rma ? " or 0" : api() >= 14 ? " to 5" : "";
  for_each_device(all_ranks().front(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const std::int64_t type = properties.integer("netDeviceType");
    const bool drives = !is_rma && api() >= 14 && type >= abi::kDeviceGinGdaki && type <= abi::kDeviceGinEfaGda;
    expect(type == abi::kDeviceGinProxy || (is_rma && type == abi::kDeviceHost) || drives,
           fmt::format("{} wrote netDeviceType = {}, expected 2{}", call, type, others));
  });
}

namespace {

// The number of devices of a rank whose plugin is loaded, for one communicator, which ends at once. 0 if a call failed.
int devices_of_communicator(Rank& rank) {
  const CallOutcome init = rank.try_call("init");
  if (!init.ok()) return 0;
  const IntOutcome devices = rank.try_devices();
  rank.try_call("finalize", {{"ctx", init.pointer("*ctx")}});
  return devices.ok() ? devices.value : 0;
}

}  // namespace

RULE_ON(
    OneSidedRule, GI_33, Should, ApiRange::one_sided(),  //
    .title = "init works again after it has failed",
    .text =
        "If init or devices has failed, or devices has written 0, and the cause is gone, both work as in a new "
        "process.",
    .source =
        "plugin/gin.cc and plugin/rma.cc up to 2.32: NCCL does not use the interface again in a process in which it "
        "failed",
    .why =
        "A later NCCL, or another program, may try again after a short lack of resources. A crash or a wrong number "
        "of devices would then hide the cause.",
    .check =
        "Counts the system calls and verbs calls that the plugin makes in init and devices. For each kind, makes all "
        "of these calls fail in a new process, until init or devices fails. Then calls both again, and puts data.",
    .blind =
        "Failures of a single call of a kind, calls on threads of the plugin, and calls within libc. Verbs calls of a "
        "NIC other than plugfest's fail only as system calls of its library.",
    .faults = {{"NVIDIA/nccl#1881", "a segmentation fault when the list of devices failed after init"}}) {
  const RankOptions loaded = {.state = RankState::kLoaded};
  std::vector<CallInPlugin> kinds;
  int expected = 0;
  on_new_ranks([&] {
    Rank rank = near_rank(loaded);
    rank.count_calls();
    expected = devices_of_communicator(rank);
    kinds = rank.count_calls().last;
  });
  if (expected == 0) not_applicable("devices() wrote 0");
  std::size_t failed = 0;
  for (const CallInPlugin& kind : kinds) {
    on_new_ranks([&] {
      Rank rank = near_rank(loaded);
      rank.count_calls(CallInPlugin{kind.function, kind.call, 0});
      const bool works = devices_of_communicator(rank) > 0;
      rank.count_calls();
      if (works) return;
      ++failed;
      const std::string situation =
          fmt::format("after a communicator for which {} failed in {}", kind.call, kind.function);
      const CallOutcome init = rank.try_call("init");
      expect(init.ok(), [&] { return fmt::format("{} returned {} {}", init.call, result_name(init.code), situation); });
      const IntOutcome devices = rank.try_devices();
      expect(devices.ok() && devices.value == expected, [&] {
        return fmt::format(
            "{} {} {}, expected {}", devices.call,
            devices.ok() ? fmt::format("wrote {}", devices.value) : "returned " + result_name(devices.code), situation,
            expected);
      });
      if (plugin::api_layout(context().interface, api()).find("iput") == nullptr) return;
      OneSidedGroup group({rank, far_rank()});
      group.require_puts(100, random()(), situation);
    });
  }
  if (failed == 0) not_applicable("no system call or verbs call makes init or devices fail");
  observe(fmt::format("{} of {} kinds of calls made init or devices fail", failed, kinds.size()));
}

RULE_ON(OneSidedRule, GI_35, Should, ApiRange::one_sided().libraries_only(),  //
        .title = "devices have the names of the net's devices",
        .text = "Device n of GIN and RMA is device n of the net in the same library, with the same name.",
        .source = "gin/gin_host.cc: chooses local devices by the net's numbers",
        .why = "NCCL takes the distance of a device to a GPU from the net.",
        .check = "Compares the names of all devices with the names in the net, if the library has one.",
        .faults = {{"ROCm/rocm-systems#11133", "the devices were numbered differently from the net's devices"}}) {
  if (plugin::inspect(context().library).net_apis().empty()) not_applicable("the library has no net");
  Rank rank = all_ranks().front();
  const std::vector<std::string> names = device_names(rank);
  on_new_ranks([&] {
    Rank net = near_rank({.state = RankState::kBare});
    net.load(0, plugin::InterfaceKind::kNet);
    net.init({.context = Preset::kNull});
    const std::vector<std::string> of_net = device_names(net);
    expect(names == of_net, [&] {
      return fmt::format("rank {}: the devices are {}, the net's devices are {}", rank.name(), fmt::join(names, ", "),
                         fmt::join(of_net, ", "));
    });
  });
}

RULE_ON(OneSidedRule, GI_36, Must, ApiRange::one_sided().libraries_only(),  //
        .title = "each symbol is a struct of its version's size",
        .text =
            "ncclGinPlugin_vN and ncclRmaPlugin_vN are data objects with default visibility and have the size of that "
            "version's struct. After init every function is set, except regMrSymDmaBuf, iget, iflush, the progress "
            "function and queryLastError; up to GIN v12 also createContext and destroyContext.",
        .source = "plugin/gin and plugin/rma: NCCL reads the struct of its own headers at the symbol",
        .why = "NCCL reads the struct of its own headers at the symbol and calls these functions without a check.",
        .check = "Reads the ELF symbols of the file without loading it, and the functions of the struct after init.",
        .blind = "A function that is set and has other parameters.") {
  if (const auto flaw = flaw_of_symbols(context().library, context().interface)) broken(*flaw);
  Rank rank = all_ranks().front();
  for (const std::string& function : missing_functions(rank))
    broken(fmt::format("rank {}: {} is NULL after init, expected a function", rank.name(), function));
}

}  // namespace plugfest::conformance
