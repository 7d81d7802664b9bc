// Rules of GIN and RMA: registrations and contexts.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "conformance/interfaces/interface_rule.h"
#include "harness/control/exported_memory.h"

namespace plugfest::conformance {

using namespace control;

RULE_ON(
    OneSidedRule, GI_05, Must, ApiRange::one_sided(),  //
    .title = "regMrSym registers memory of any size at any address",
    .text =
        "regMrSym is a collective. Ranks register equal sizes at different addresses. The same range may be registered "
        "again, and each handle is valid until its own deregMrSym, even for memory that is unmapped. The most "
        "significant bit of a handle is 0.",
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
    for (const std::uint64_t mhandle : window.mhandles)
      expect(mhandle >> 63 == 0, [&] {
        return fmt::format("regMrSym stored the handle {:#x}, of which device code passes on 63 bits", mhandle);
      });
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

RULE_ON(OneSidedRule, GI_06, Must, ApiRange::one_sided(11, 13),  //
        .title = "both handles of a registration name it in data calls",
        .text =
            "regMrSym stores *mhandle and *ginHandle. Data calls get *ginHandle for windows and signals, and *mhandle "
            "for inline data. *ginHandle has 63 bits.",
        .source = "gin/gin_host_proxy.cc: proxyGinProcessGfd",
        .why = "Device code sends *ginHandle back to the proxy, which passes it to iput.",
        .check = "Puts data and a signal with *ginHandle only, and with *mhandle of the source.",
        .blind = "GPU memory.") {
  OneSidedGroup group = connected();
  const Window window = group.window(128), signals = group.window(8, abi::kForceStrictOrder);
  const auto with_device_handles = [&](const Window& registered) {
    const std::vector<Slice> slices(registered.memory.begin(), registered.memory.end());
    Window again = {registered.memory, group.reg(slices, abi::kForceStrictOrder, "*ginHandle")};
    for (const std::uint64_t handle : again.mhandles)
      expect(handle >> 63 == 0,
             [&] { return fmt::format("regMrSym stored *ginHandle {:#x}, expected 63 bits", handle); });
    return again;
  };
  const Window device_window = with_device_handles(window), device_signals = with_device_handles(signals);
  const auto put = [&](const Window& source, std::uint64_t value) {
    const std::uint64_t seed = random()();
    group[0].rank().fill(window.memory[0].sub(0, 64), seed);
    std::vector<Operation> puts;
    puts.emplace_back(group[0], "iputSignal",
                      with(put_arguments({source}, {device_window, 64}, 64, 0, 1),
                           signal_arguments({device_signals}, 0, 1, abi::kSignalInc, 1)));
    group.finish(puts);
    group.require_signal(1, signals.memory[1], value, window.memory[1].sub(64, 64), seed);
  };
  put(device_window, 1);
  put(window, 2);
}

RULE_ON(
    OneSidedRule, GI_20, Must, ApiRange::one_sided(13),  //
    .title = "contexts do not disturb each other",
    .text =
        "createContext can be called several times on a collComm, each time for several contexts. The context objects "
        "can be destroyed in any order.",
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
    group.finish(puts);
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

RULE_ON(OneSidedRule, GI_22, Must, ApiRange::one_sided(13, 13),  //
        .title = "createContext accepts NULL instead of a device handle",
        .text = "A plugin whose device type is the proxy has no device handle, and its pointer may be NULL.",
        .source = "rma/rma_proxy.cc of NCCL 2.30.3: createContext(.., NULL)",
        .why = "NCCL 2.30.3 passes NULL. A plugin that writes there crashes.",
        .check = "Opens a context with NULL, and puts data.") {
  OneSidedGroup group = connected();
  group.use_contexts(group.open_contexts({.context = {{"*devHandle", wire::kNoArray}}}));
  group.require_puts(100, random()());
}

RULE_ON(
    OneSidedRule, GI_23, Must, ApiRange::one_sided(13),  //
    .title = "createContext accepts every traffic class",
    .text =
        "The traffic class INT_MIN means the default of the plugin. [S]: a value that the network does not know does "
        "not make createContext fail.",
    .source = "nccl.h: NCCL_CONFIG_UNDEF_INT is INT_MIN, and NCCL passes it on",
    .why = "NCCL passes INT_MIN unless the user sets a traffic class.",
    .check = "Opens contexts with the traffic classes INT_MIN, -1, 106 and 255, and puts data through each.",
    .blind = "The traffic class on the wire.") {
  for (const int traffic_class : {abi::kContextTrafficClassUndefined, -1, 106, 255}) {
    require_or_probe(traffic_class == abi::kContextTrafficClassUndefined, [&] {
      OneSidedGroup group = connected();
      group.use_contexts(group.open_contexts({.traffic_class = traffic_class}));
      group.require_puts(100, random()(), fmt::format("with traffic class {}", traffic_class));
    });
  }
}

RULE_ON(OneSidedRule, GI_24, Must, ApiRange::one_sided(16),  //
        .title = "getRmaProperties always gives the same answer",
        .text = "getRmaProperties succeeds for a collComm and writes flushesAllPutsOnAnySignal, always the same.",
        .source = "plugin/rma.cc: getRmaProperties, RMA v16",
        .why = "NCCL omits flushes if the value is true. A value that is not written is uninitialized memory.",
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

RULE_ON(OneSidedRule, GI_26, Must, ApiRange::one_sided(),  //
        .title = "a DMA-BUF may be closed after registration",
        .text = "regMrSymDmaBuf does not use the descriptor after it has returned. The registration keeps the memory.",
        .source = "gin/gin_host_proxy.cc and rma/rma_proxy.cc: NCCL closes it after the call",
        .why = "NCCL closes the descriptor at once. A later use of its number reaches another file.",
        .check =
            "Registers memory with its descriptor on two ranks, gives the number of the descriptor to another file, "
            "puts 2,000 bytes with a signal in each direction, and compares them. The descriptor refers to a DMA-BUF "
            "if /dev/udmabuf exists, and otherwise to a memory file, which plugfest's NIC accepts. A plugin whose "
            "ptrSupport does not have NCCL_PTR_DMABUF may refuse both.",
        .blind = "GPU memory, and offsets other than 0, which NCCL does not use.") {
  on_new_ranks([&] {
    const std::vector<Rank> ranks = ranks_with_data();
    Rank first = ranks[0];
    if (!first.has_function("regMrSymDmaBuf")) not_applicable("regMrSymDmaBuf is NULL");
    const bool supported = (first.try_properties(Device{0}).integer("ptrSupport") & abi::kPointerDmaBuf) != 0;
    constexpr std::size_t kSize = 2000;
    OneSidedGroup group(ranks);
    std::vector<ExportedMemory> exported;
    for (std::size_t i = 0; i < group.size(); ++i) exported.push_back(allocate_exported(group[i].rank(), 4096));
    Window window;
    try {
      window = register_exported(group, exported);
    } catch (const Deviation& failure) {
      if (!supported) not_applicable(fmt::format("{}: ptrSupport does not have NCCL_PTR_DMABUF", failure.what()));
      if (exported[0].is_dma_buf) throw;
      skip(fmt::format("{}: there is no /dev/udmabuf, and the NIC may refuse memory files", failure.what()));
    }
    for (std::size_t i = 0; i < group.size(); ++i) replace_descriptor(group[i].rank(), exported[i].descriptor);
    const Window signals = group.window(8, abi::kForceStrictOrder);
    for (const std::size_t from : {0u, 1u}) {
      const std::size_t to = 1 - from;
      const std::uint64_t seed = random()();
      group[from].rank().fill(window.memory[from].sub(0, kSize), seed);
      std::vector<Operation> puts;
      puts.emplace_back(group[from], "iputSignal",
                        with(put_arguments({window}, {window, kSize}, kSize, from, to),
                             signal_arguments({signals}, from, to, abi::kSignalInc, 1)));
      group.finish(puts);
      group.require_signal(to, signals.memory[to], 1, window.memory[to].sub(kSize, kSize), seed);
    }
    group.dereg(window.mhandles);
  });
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
    return group[number].start_call("regMrSym", reg_arguments(memory));
  };
  auto waiting = start_reg(0, early);
  std::vector<Operation> puts;
  for (const std::size_t from : {0u, 1u, 0u, 1u})
    puts.emplace_back(group[from], "iput", put_arguments({window}, {window, 8}, 8, from, 1 - from));
  group.finish(puts);
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
        .why = "A rank whose peer has ended would wait forever.",
        .check = "Stops a peer, deregisters memory, destroys the context and closes the collComm.",
        .blind = "A peer that has ended.", .alone = true) {
  OneSidedGroup group = connected();
  const Window window = group.window(4096);
  group[1].rank().freeze();
  group[0].call("deregMrSym", {{"mhandle", window.mhandles[0]}});
  if (group[0].context() != 0) group[0].call("destroyContext");
  group[0].call("closeColl");
  group[1].rank().thaw();
}

RULE_ON(OneSidedRule, GI_31, Must, ApiRange::one_sided(14),  //
        .title = "rankStride connects every n-th rank",
        .text =
            "A context with the rankStride n connects the ranks that are equal modulo n, for each n that divides the "
            "number of ranks. [S]: another rankStride gives an error.",
        .source = "rma/rma_proxy.cc: rankStride; transport/net_ib/gin.cc refuses others",
        .why = "NCCL asks for contexts of one rail, which connect the ranks at the same place in each node.",
        .check =
            "Opens a context whose rankStride is half of the number of ranks, or all of it for an odd number, and puts "
            "data between the ranks that it connects. Then asks for a rankStride of 0.",
        .blind = "Whether the context also connects other ranks.", .ranks = 3, .most_ranks = 4) {
  OneSidedGroup group = connected();
  if (context().interface != plugin::InterfaceKind::kRma) not_applicable("contexts of GIN v13 have no rankStride");
  const std::size_t stride = group.size() % 2 == 0 ? group.size() / 2 : group.size();
  group.use_contexts(group.open_contexts({.rank_stride = static_cast<int>(stride)}));
  const Window window = group.window(2000);
  const std::uint64_t seed = random()();
  std::vector<Operation> puts;
  for (std::size_t from = 0; from < group.size(); ++from) {
    group[from].rank().fill(window.memory[from].sub(0, 1000), seed + from);
    puts.emplace_back(group[from], "iput",
                      put_arguments({window}, {window, 1000}, 1000, from, (from + stride) % group.size()));
  }
  group.finish(puts);
  const Window signals = group.window(8, abi::kForceStrictOrder);
  puts.clear();
  for (std::size_t from = 0; from < group.size(); ++from)
    puts.emplace_back(group[from], "iputSignal",
                      signal_arguments({signals}, from, (from + stride) % group.size(), abi::kSignalInc, 1));
  group.finish(puts);
  for (std::size_t from = 0; from < group.size(); ++from) {
    const std::size_t to = (from + stride) % group.size();
    group.require_signal(to, signals.memory[to], 1, window.memory[to].sub(1000, 1000), seed + from);
  }
  probe([&] {
    OneSidedGroup fresh = connected();
    bool refused = false;
    try {
      fresh.open_contexts({.rank_stride = 0});
    } catch (const CallFailed&) {
      refused = true;
    }
    expect(refused, "createContext with a rankStride of 0 returned Success, expected an error");
  });
}

}  // namespace plugfest::conformance
