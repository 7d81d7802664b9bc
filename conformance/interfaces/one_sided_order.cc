// Rules of GIN and RMA: signals, their order, and operations at the same time.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "conformance/interfaces/interface_rule.h"
#include "conformance/model/one_sided.h"
#include "harness/control/workload.h"

namespace plugfest::conformance {

using namespace control;

RULE_ON(
    OneSidedRule, GI_11, Must, ApiRange::one_sided(),  //
    .title = "a signal arrives after the data before it",
    .text =
        "A strong signal is visible after the data of its own iputSignal and of all earlier puts to that rank on "
        "that context. A weak signal is visible after its own data. This holds even if packets are lost or late.",
    .source = "plugins/gin/README.md: strong and weak signals; NCCL 2.30.7 and older know only strong ones",
    .why =
        "A kernel that waits for the signal reads the data at once. Data that comes later is stale. A signal on "
        "another queue pair arrives while lost data is sent again.",
    .check =
        "Puts 20 times 300,000 bytes in three puts and a signal with the last one, and with weak signals in one put, "
        "if the version has them. A thread of the target waits for the signal without a pause, and compares all "
        "bytes when it comes. Then puts 20 times 100,000 bytes while the first rank's NIC loses 20 % of its packets, "
        "half of them with a signal in a call of its own. This part needs a network into which faults can be injected.",
    .blind = "Reordering by networks under load, which this fabric does not produce.", .alone = true) {
  constexpr std::size_t kPart = 100'000, kParts = 3;
  OneSidedGroup group = connected();
  const Window window = group.window(2 * kPart * kParts), signals = group.window(8, abi::kForceStrictOrder);
  std::uint64_t value = 0;
  // `apart`: the signal has no data.
  const auto exchange = [&](std::size_t parts, bool strong, bool apart) {
    const std::uint64_t seed = random()();
    const std::size_t size = parts * kPart;
    group[0].rank().fill(window.memory[0].sub(0, size), seed);
    auto watching =
        start_awaiting(group[1].rank(), signals.memory[1], ++value, window.memory[1].sub(kPart * kParts, size), seed);
    const CallArguments signal =
        with(signal_arguments({signals}, 0, 1, abi::kSignalInc, 1), {{"isStrongSignal", strong ? 1 : 0}});
    std::vector<Operation> puts;
    for (std::size_t i = 0; i < parts; ++i) {
      CallArguments put = put_arguments({window, i * kPart}, {window, kPart * kParts + i * kPart}, kPart, 0, 1);
      const bool last = i + 1 == parts && !apart;
      puts.emplace_back(group[0], last ? "iputSignal" : "iput", last ? with(std::move(put), signal) : std::move(put));
    }
    if (apart) puts.emplace_back(group[0], "iputSignal", signal);
    for (Operation& put : puts) put.post();
    group.finish(puts);
    const WatchOutcome outcome = group.get(watching);
    expect(outcome.broken.empty(), [&] {
      return fmt::format("rank {}: {}, expected the data before a {} signal", group[1].name(), outcome.broken,
                         strong ? "strong" : "weak");
    });
  };
  for (int i = 0; i < repeated(20); ++i) exchange(kParts, true, false);
  const bool weak = context().interface == plugin::InterfaceKind::kRma && api() >= 14;
  for (int i = 0; weak && i < repeated(10); ++i) exchange(1, false, false);
  if (context().injector == nullptr) return;
  require_injector();  // no other rule runs at the same time
  const std::string& interface = context().ranks.interfaces[0][1];
  const faults::ActiveFault loss(*context().injector,
                                 {.packets = {.loss = 0.2, .seed = random()()},
                                  .interfaces = {faults::find_interface(context().injector->graph(), interface)}});
  for (int i = 0; i < repeated(20); ++i) exchange(1, true, i % 2 == 0);
}

RULE_ON(OneSidedRule, GI_12, Must, ApiRange::one_sided(),  //
        .title = "signals of several ranks add up",
        .text =
            "Signals increment or add to 64-bit numbers, atomically for all ranks, modulo 2^64. An increment ignores "
            "the value. A signal needs no data: its handles are then NULL.",
        .source = "device/gin: ncclGin_SignalInc, ncclGin_SignalAdd",
        .why = "A kernel waits for the sum of all ranks' signals. If a signal is lost, the kernel hangs.",
        .check =
            "Each rank, the target included, sends 100 increments and 100 additions of 2^60 + 3 to two numbers of each "
            "rank; compares the sums.",
        .blind = "More than four ranks.",
        .faults = {{"aws/aws-ofi-nccl#1327", "the last of many small signals waited for a further call"}}, .ranks = 3,
        .most_ranks = 4) {
  constexpr int kSignals = 100;
  constexpr std::uint64_t kAdded = (std::uint64_t{1} << 60) + 3;
  OneSidedGroup group = connected();
  const Window signals = group.window(16, abi::kForceStrictOrder);
  std::vector<Operation> operations;
  for (int i = 0; i < kSignals; ++i) {
    for (std::size_t from = 0; from < group.size(); ++from) {
      for (std::size_t to = 0; to < group.size(); ++to) {
        operations.emplace_back(group[from], "iputSignal",
                                signal_arguments({signals}, from, to, abi::kSignalInc, 1000));
        operations.emplace_back(group[from], "iputSignal",
                                signal_arguments({signals, 8}, from, to, abi::kSignalAdd, kAdded));
      }
    }
    // Fewer than 32 requests to each rank are in flight.
    if (i % 10 == 9) {
      group.finish(operations);
      operations.clear();
    }
  }
  const std::uint64_t count = kSignals * group.size();
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    group.require_signal(rank, signals.memory[rank].sub(0, 8), count);
    group.require_signal(rank, signals.memory[rank].sub(8, 8), count * kAdded);
  }
}

RULE_ON(
    OneSidedRule, GI_25, Must, ApiRange::one_sided(15),  //
    .title = "aggregation is a hint",
    .text =
        "With optFlags 1, a plugin may post an operation together with the next one. Bytes, order and completions are "
        "as with 0. [S]: an operation with optFlags 1 also completes if no other one follows.",
    .source = "plugin/rma: NCCL sets optFlags 1 if another operation for the same rank follows in its batch",
    .why = "An operation that waits for a next one hangs the kernel if the batch ends early, for example by an error.",
    .check =
        "Puts up to 64 times 1,000 bytes with optFlags 1 and a signal with 0 after them, and compares the bytes when "
        "the signal arrives. Then puts once with optFlags 1 and tests it.",
    .blind = "Aggregation of gets.") {
  constexpr std::size_t kMost = 64, kSize = 1000;
  OneSidedGroup group = connected();
  // The signal is a request too.
  const std::size_t count = std::min(kMost, std::max<std::size_t>(most_requests(group), 32) - 1);
  const Window source = group.window(count * kSize), target = group.window(count * kSize);
  const Window signals = group.window(8, abi::kForceStrictOrder);
  const std::uint64_t seed = random()();
  group[0].rank().fill(source.memory[0], seed);
  const CallArguments aggregate = {{"optFlags", abi::kAggregateRequests}};
  std::vector<Operation> puts;
  for (std::size_t i = 0; i < count; ++i)
    puts.emplace_back(group[0], "iput",
                      with(put_arguments({source, i * kSize}, {target, i * kSize}, kSize, 0, 1), aggregate));
  puts.emplace_back(group[0], "iputSignal", signal_arguments({signals}, 0, 1, abi::kSignalInc, 1));
  for (Operation& put : puts) put.post();
  group.finish(puts);
  group.require_signal(1, signals.memory[1], 1, target.memory[1], seed);
  probe([&] {
    OneSidedGroup fresh = connected();
    const Window window = fresh.window(64);
    std::vector<Operation> last;
    last.emplace_back(fresh[0], "iput", with(put_arguments({window}, {window, 8}, 8, 0, 1), aggregate));
    fresh.finish(last);
  });
}

RULE_ON(
    OneSidedRule, GI_29, Must, ApiRange::one_sided(),  //
    .title = "two threads drive two collComms",
    .text = "Calls on different collComms come from different threads at the same time.",
    .source =
        "gin/gin_host_proxy.cc: NCCL_GIN_PROXY_NTHREADS; rma/rma_proxy.cc: host RMA has a progress thread of its own",
    .why = "A job that uses GIN and host RMA has two progress threads, which call one plugin.",
    .check = "Two threads of a rank put 2,000 times 8 bytes on a collComm each, and a signal.",
    .blind = "Data races that change no result. A plugin built with -fsanitize=thread shows them.",
    .faults = {{"aws/aws-ofi-nccl#1259", "progress of one communicator freed requests of another one"}}) {
  const std::vector<Rank> ranks = ranks_with_data();
  std::vector<OneSidedGroup> groups;
  std::vector<Window> windows, signals;
  for (int i = 0; i < 2; ++i) {
    groups.emplace_back(ranks);
    windows.push_back(groups.back().window(16));
    signals.push_back(groups.back().window(8, abi::kForceStrictOrder));
  }
  std::vector<Started<OneSidedLoopOutcome>> at_targets, at_sources;
  std::vector<OneSidedRank*> targets;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    OneSidedRank &target = groups[i][1], &source = groups[i][0];
    for (OneSidedRank* const rank : {&target, &source}) rank->use_thread(fmt::format("prog{}", i));
    targets.push_back(&target);
    at_targets.push_back(start_loop(target, {.count = 1, .signal = signals[i].memory[1]}));
    at_sources.push_back(start_loop(source, {.function = "iput",
                                             .arguments = put_arguments({windows[i]}, {windows[i], 8}, 8, 0, 1),
                                             .count = static_cast<std::uint64_t>(repeated(2000)),
                                             .window = 16,
                                             .last = signal_arguments({signals[i]}, 0, 1, abi::kSignalInc, 1)}));
  }
  for (auto& loop : at_targets) require_clean(loop.get());
  for (auto& loop : at_sources) require_clean(get_with_progress(loop, targets));
}

RULE_ON(
    OneSidedRule, GI_38, Must, ApiRange::one_sided(),  //
    .title = "random operations have the effects of a model",
    .text =
        "Puts, gets and signals of all ranks and contexts may be mixed in any order. Each has its own effect and no "
        "other one.",
    .source = "plugins/gin/README.md and plugin/rma: all operations are independent, except that signals are ordered",
    .why = "Kernels of several streams issue operations at the same time.",
    .check =
        "Several times, the ranks post up to 80 random operations: puts and gets of up to a megabyte, with and without "
        "signals, on two contexts if the version has them, and no gets if iget is NULL. Compares all memory and all "
        "sums with a model. plugfest fuzz does the same for longer, and finds the operations that a deviation needs.",
    .blind = "Operations that use the same bytes, whose order no contract fixes.", .ranks = 3, .most_ranks = 4) {
  OneSidedGroup group = connected({.contexts = model::kContexts});
  model::Shape shape = {.interface = std::string(plugin::interface_of(context().interface).name),
                        .topology = {},
                        .ranks = {},
                        .gets = group[0].rank().has_function("iget"),
                        .contexts = abi::has_gets_and_contexts(api())};
  for (std::size_t i = 0; i < group.size(); ++i) shape.ranks.push_back(group[i].name());
  for (int i = 0; i < repeated(6); ++i) {
    const model::Schedule schedule = model::random_schedule(shape, random()());
    model::Played played;
    model::play_operations(group, schedule, played);
    if (!played.deviation) continue;
    const std::optional<std::size_t> step = played.deviation->step;
    broken(fmt::format("{}, in schedule {}{}", played.deviation->what, i,
                       step ? ": " + model::step_text(schedule, schedule.steps[*step]) : ""));
  }
}

}  // namespace plugfest::conformance
