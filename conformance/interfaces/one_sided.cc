// Rules of GIN and RMA: symbols, devices, connect, contexts, registrations.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/interfaces/one_sided_group.h"
#include "conformance/net/script/library_check.h"

namespace plugfest::conformance {

using namespace control;

RULE(GI_01, Must, ApiRange::one_sided(),  //
     .title = "contexts of init are independent",
     .text =
         "init can be called again, also for one communicator, and stores another context. finalize of one context "
         "leaves the others usable, in any order, also straight after getProperties.",
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
          fmt::format("{} returned {}: NCCL goes on without the interface", init.call, result_name(init.code)));
    contexts.push_back(init.pointer("*ctx"));
    expect(!init.untouched("*ctx"), [&] { return init.call + " succeeded and stored no context"; });
  }
  const int devices = rank.devices();
  if (devices > 0) require_success(rank.try_properties(Device{0}));
  for (const std::size_t closed : {1, 0}) {
    rank.call("finalize", {{"ctx", contexts[closed]}});
    const int now = rank.devices();
    expect(now == devices, [&] {
      return fmt::format("rank {}: devices() wrote {} after finalize of one of three contexts, and {} before",
                         rank.name(), now, devices);
    });
  }
}

RULE_ON(OneSidedRule, GI_03, Must, ApiRange::one_sided(),  //
        .title = "connect joins all ranks, and a rank with itself",
        .text =
            "connect is a blocking collective: it waits for ranks that call it later, and stores a collComm on all of "
            "them. A rank is also connected with itself. It keeps no pointer to the handles.",
        .source = "gin/gin_host.cc: ncclGinConnectOnce; NCCL frees the handles after connect",
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
        .source = "gin/gin_host.cc: up to 4 connections, also on one device; host RMA has its own",
        .why = "NCCL opens up to four collComms of a communicator on one device.",
        .check = "Connects the ranks four times, puts data on each collComm, and closes the second before the others.",
        .blind = "Traffic on all of them at the same time.") {
  const std::vector<Rank> ranks = all_ranks();
  std::vector<OneSidedGroup> groups;
  for (int i = 0; i < 4; ++i) groups.emplace_back(ranks);
  for (OneSidedGroup& group : groups) group.require_puts(100, random()());
  groups[1].close();
  groups[3].require_puts(100, random()(), "after another collComm was closed");
}

RULE_ON(
    OneSidedRule, GI_05, Must, ApiRange::one_sided(),  //
    .title = "regMrSym registers memory of any size at any address",
    .text =
        "regMrSym is a collective. Ranks register equal sizes at different addresses. The same range may be "
        "registered again, and each handle is valid until its own deregMrSym, also for memory that is unmapped.",
    .source = "gin/gin_host_proxy.cc and rma/rma_proxy.cc: registrations; the memory is freed before deregMrSym",
    .why =
        "NCCL registers signals of 8 bytes and windows of gigabytes, and frees some memory before it deregisters it.",
    .check =
        "Registers ranges of 8, 24, 4,104 bytes and 64 MiB, each twice, puts through the second handle after the "
        "first one ended, and deregisters memory that is unmapped.",
    .blind = "Registrations of more than 64 MiB, and of GPU memory.") {
  OneSidedGroup group = connected();
  for (const std::size_t size : {std::size_t{8}, std::size_t{24}, std::size_t{4104}, std::size_t{64} << 20}) {
    Window window = group.window(size);
    std::vector<Slice> slices(window.memory.begin(), window.memory.end());
    const std::vector<std::uint64_t> first = window.mhandles;
    window.mhandles = group.reg(slices);
    group.dereg(first);
    const std::uint64_t seed = random()();
    group[0].rank().fill(slices[0].sub(0, 4), seed);
    std::vector<Operation> puts;
    puts.emplace_back(group[0], "iput", put_arguments({window}, {window, size - 4}, 4, 0, 1));
    group.deliver(puts);
    require_same(group[1].rank().check(slices[1].sub(size - 4, 4), seed),
                 fmt::format("a put to the end of {} bytes that are registered twice", size));
    for (Memory& memory : window.memory) memory.unmap();
    group.dereg(window.mhandles);
  }
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
  const std::vector<Rank> ranks = all_ranks();
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
        .why = "NCCL uses wrong entries of its queue if it is no power of two.",
        .check = "Reads maxRecvs of every device.",
        .faults = {{"aws/aws-ofi-nccl#1270", "maxRecvs made NCCL's index mask wrong"}}) {
  for_each_device(all_ranks().front(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const auto receives = static_cast<std::uint64_t>(properties.integer("maxRecvs"));
    expect(receives > 0 && receives < 1024 && (receives & (receives - 1)) == 0,
           fmt::format("{} wrote maxRecvs = {}, expected a power of two", call, receives));
  });
}

RULE_ON(OneSidedRule, GI_20, Must, ApiRange::one_sided(13),  //
        .title = "contexts do not disturb each other",
        .text =
            "createContext can be called several times on a collComm, with several contexts each, and they are "
            "destroyed in any order.",
        .source = "rma/rma_proxy.cc: several contexts on each connection, one for each device communicator",
        .why = "Each device communicator has contexts of its own on the shared collComms.",
        .check =
            "Opens two further context objects with two contexts each, puts data through each of them, destroys the "
            "first one, and puts data through the others.",
        .blind = "Contexts in use by several threads.") {
  OneSidedGroup group = connected();
  const std::vector<std::uint64_t> first = {group[0].context(), group[1].context()};
  const std::vector<std::uint64_t> second = group.open_contexts({.contexts = 2});
  const std::vector<std::uint64_t> third = group.open_contexts({.contexts = 2});
  const auto exchange = [&](const std::vector<std::uint64_t>& contexts, int number) {
    group.use_contexts(contexts);
    const Window window = group.window(2000);
    const Window signals = group.window(8, abi::kForceStrictOrder);
    const std::uint64_t seed = random()();
    group[0].rank().fill(window.memory[0].sub(0, 1000), seed);
    std::vector<Operation> puts;
    puts.emplace_back(group[0], "iputSignal",
                      with(with(put_arguments({window}, {window, 1000}, 1000, 0, 1),
                                signal_arguments({signals}, 0, 1, abi::kSignalInc, 1)),
                           {{"context", number}}));
    finish(puts);
    group.require_signal(1, signals.memory[1], 1, window.memory[1].sub(1000, 1000), seed);
    group.dereg(window.mhandles);
    group.dereg(signals.mhandles);
  };
  for (const int number : {0, 1}) {
    exchange(second, number);
    exchange(third, number);
  }
  exchange(first, 0);
  group.use_contexts(first);
  group.close_contexts(second);
  exchange(third, 1);
  group.require_puts(100, random()(), "after another context was destroyed");
}

RULE_ON(OneSidedRule, GI_21, Must, ApiRange::one_sided(),  //
        .title = "the device type is that of the proxy",
        .text = "netDeviceType is 2, NCCL_NET_DEVICE_GIN_PROXY, for every device; for RMA it may be 0, host.",
        .source = "plugin/gin.cc: chooses the back end by netDeviceType of device 0",
        .why = "With another type NCCL expects code of this plugin on the GPU.",
        .check = "Reads netDeviceType of every device.",
        .faults = {{"aws/aws-ofi-nccl#1301", "a vendored header gave a device type another number"}}) {
  const bool is_rma = context().interface == plugin::InterfaceKind::kRma;
  for_each_device(all_ranks().front(), [&](int, const PropertiesOutcome& properties, const std::string& call) {
    const std::int64_t type = properties.integer("netDeviceType");
    expect(type == abi::kDeviceGinProxy || (is_rma && type == abi::kDeviceHost),
           fmt::format("{} wrote netDeviceType = {}, expected 2{}", call, type, is_rma ? " or 0" : ""));
  });
}

RULE_ON(OneSidedRule, GI_23, Must, ApiRange::one_sided(13),  //
        .title = "createContext accepts every traffic class",
        .text = "A traffic class outside of 0 to 255, such as INT_MIN, means the default of the plugin.",
        .source = "nccl.h: NCCL_CONFIG_UNDEF_INT is INT_MIN, and NCCL passes it on",
        .why = "NCCL passes INT_MIN unless the user sets a traffic class.",
        .check = "Opens contexts with the traffic classes INT_MIN, -1, 106 and 255, and puts data through each.",
        .blind = "The traffic class on the wire.") {
  OneSidedGroup group = connected();
  for (const int traffic_class : {abi::kContextTrafficClassUndefined, -1, 106, 255}) {
    group.use_contexts(group.open_contexts({.traffic_class = traffic_class}));
    group.require_puts(100, random()(), fmt::format("with traffic class {}", traffic_class));
  }
}

RULE_ON(OneSidedRule, GI_24, Must, ApiRange::one_sided(16),  //
        .title = "getRmaProperties gives the same answer again",
        .text = "getRmaProperties succeeds for a collComm and writes flushesAllPutsOnAnySignal, always the same.",
        .source = "plugin/rma.cc: getRmaProperties, RMA v16",
        .why = "NCCL omits flushes if the value is true. A value that is not written is uninitialised memory.",
        .check = "Calls it twice, with the value preset to two others.",
        .blind = "Whether a signal really makes all received puts visible.") {
  OneSidedGroup group = connected();
  std::vector<std::uint64_t> answers;
  for (const int preset : {0x5a, 0xa5}) {
    const CallOutcome outcome = group[0].call("getRmaProperties", {{"*rmaProps", preset}});
    answers.push_back(outcome.pointer("*rmaProps"));
    expect(answers.back() <= 1,
           [&] { return fmt::format("{} wrote {:#x}, expected 0 or 1", outcome.call, answers.back()); });
  }
  expect(answers[0] == answers[1],
         fmt::format("rank {}: getRmaProperties wrote {}, then {}", group[0].name(), answers[0], answers[1]));
}

RULE_ON(
    OneSidedRule, GI_28, Must, ApiRange::one_sided(),  //
    .title = "a registration that waits does not stop puts",
    .text =
        "While regMrSym of the main thread waits for other ranks, the progress thread puts and tests on the same "
        "collComm.",
    .source = "gin/gin_host_proxy.cc and rma/rma_proxy.cc: a progress thread beside the main thread",
    .why = "Kernels of other streams wait for their puts. A rank that they wait for may register later.",
    .check =
        "Calls regMrSym on all ranks but the last, exchanges puts with it, and only then calls regMrSym on the last.",
    .blind = "createContext, and races that need more than one such call.") {
  OneSidedGroup group = connected();
  const Window window = group.window(64);
  const Memory early = group[0].rank().allocate(4096), late = group[1].rank().allocate(4096);
  const auto start_reg = [&](std::size_t number, const Memory& memory) {
    return group[number].start_call(
        "regMrSym",
        {{"data", memory.address()}, {"size", memory.size()}, {"type", static_cast<int>(abi::kPointerHost)}});
  };
  auto waiting = start_reg(0, early);
  std::vector<Operation> puts;
  for (const std::size_t from : {0, 1, 0, 1})
    puts.emplace_back(group[from], "iput", put_arguments({window}, {window, 8}, 8, from, 1 - from));
  finish(puts);
  auto last = start_reg(1, late);
  std::vector<std::uint64_t> mhandles;
  for (auto* call : {&waiting, &last}) {
    const CallOutcome outcome = call->get();
    require_success(outcome);
    mhandles.push_back(outcome.pointer("*mhandle"));
  }
  group.dereg(mhandles);
}

RULE_ON(OneSidedRule, GI_30, Must, ApiRange::one_sided(),  //
        .title = "deregMrSym does not wait for other ranks",
        .text = "deregMrSym, destroyContext and closeColl are local: they return while a peer makes no call.",
        .source = "gin/gin_host_proxy.cc and rma/rma_proxy.cc: each rank frees its resources alone",
        .why = "A rank whose peer has ended would wait for ever.",
        .check = "Stops a peer, deregisters memory, destroys the context and closes the collComm.",
        .blind = "A peer that has ended.") {
  OneSidedGroup group = connected();
  const Window window = group.window(4096);
  group[1].rank().freeze();
  group[0].call("deregMrSym", {{"mhandle", window.mhandles[0]}});
  if (group[0].context() != 0) group[0].call("destroyContext");
  group[0].call("closeColl");
  group[1].rank().thaw();
}

RULE_ON(OneSidedRule, GI_35, Should, ApiRange::one_sided().libraries_only(),  //
        .title = "devices have the names of the net's devices",
        .text = "Device n of GIN and RMA is device n of the net in the same library, with the same name.",
        .source = "gin/gin_host.cc: chooses local devices by the net's numbers",
        .why = "NCCL takes the distance of a device to a GPU from the net.",
        .check = "Compares the names of all devices with those of the net, if the library has one.",
        .faults = {{"ROCm/rocm-systems#11133", "the devices were numbered differently from those of the net"}}) {
  if (plugin::inspect(context().library).net_apis().empty()) not_applicable("the library has no net");
  Rank rank = all_ranks().front();
  const std::vector<std::string> names = device_names(rank);
  on_new_ranks([&] {
    Rank net = near_rank({.state = RankState::kBare});
    net.load(0, plugin::InterfaceKind::kNet);
    net.init({.context = Preset::kNull});
    const std::vector<std::string> of_net = device_names(net);
    expect(names == of_net, [&] {
      return fmt::format("rank {}: the devices are {}, those of the net are {}", rank.name(), fmt::join(names, ", "),
                         fmt::join(of_net, ", "));
    });
  });
}

RULE_ON(OneSidedRule, GI_36, Must, ApiRange::one_sided().libraries_only(),  //
        .title = "each symbol is a struct of its version's size",
        .text =
            "ncclGinPlugin_vN and ncclRmaPlugin_vN are data objects with default visibility and have the size of that "
            "version's struct. After init every function is set, except regMrSymDmaBuf, the progress function and "
            "queryLastError; up to GIN v12 also createContext.",
        .source = "plugin/gin and plugin/rma: NCCL reads the struct of its own headers at the symbol",
        .why = "NCCL reads the struct of its own headers at the symbol and calls its functions without a check.",
        .check = "Reads the ELF symbols of the file without loading it, and the functions of the struct after init.",
        .blind = "A function that is set and has other parameters.") {
  if (const auto flaw = flaw_of_symbols(context().library, context().interface)) broken(*flaw);
  Rank rank = all_ranks().front();
  for (const std::string& function : missing_functions(rank))
    broken(fmt::format("rank {}: {} is NULL after init, expected a function", rank.name(), function));
}

}  // namespace plugfest::conformance
