// PI rules: symbol, init and finalize of a profiler plugin. The other PI rules are in profiler_calls.cc and
// profiler_load.cc.
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/interfaces/profiler_rule.h"

namespace plugfest::conformance {

namespace {

// Calls init for communicator `number` without a preset of *context.
CallOutcome init_without_preset(Rank& rank, int number) {
  return rank.try_call("init", {{"commId", 0x1000 + number},
                                {"commName", "plugfest"},
                                {"nNodes", 2},
                                {"nranks", 2},
                                {"rank", number % 2},
                                {"*eActivationMask", 0}});
}

}  // namespace

RULE_ON(
    InterfaceRule, PI_01, Must, ApiRange::profiler(),  //
    .title = "each symbol is an exported struct of its version's size",
    .text =
        "ncclProfiler_vN is a data object with default visibility and has the size of that version's struct. Its name "
        "and its five functions are set after init.",
    .source = "plugin/profiler/profiler_v*.cc; plugin/profiler.cc: ncclProfilerPluginLoad",
    .why = "NCCL reads the struct of its own headers at the symbol and calls its functions without a check.",
    .check = "Reads the ELF symbols of the file without loading it, and the struct after init.",
    .blind = "A function that is set and has other parameters.") {
  Rank rank = ready_rank();
  require_table(rank);
}

RULE_ON(
    ProfilerRule, PI_02, Must, ApiRange::profiler(),  //
    .title = "init asks for known events",
    .text =
        "A successful init writes nothing but *context and *eActivationMask, an int. [S]: the mask has only bits of "
        "events that this version knows.",
    .source = "plugin/profiler.cc: ncclProfilerPluginInit",
    .why =
        "Types of events have 64 bits since v5, the mask has 32: a plugin that writes 64 overwrites what follows. A "
        "bit that the version does not know has no effect.",
    .check = "Calls init with poison in *context and 0 in *eActivationMask, as NCCL presets it, and looks at both.",
    .blind = "Whether the plugin records the events that it asks for.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  const CallOutcome outcome = init_without_preset(rank, 0);
  require_first_init(outcome);
  require_success(outcome);  // no write beside the outputs
  if (outcome.untouched("*context")) observe(fmt::format("{} stored no context", outcome.call));
  const int mask = outcome.integer("*eActivationMask");
  should((mask & ~known_events(api())) == 0,
         fmt::format("{} wrote the activation mask 0x{:x}, expected bits of 0x{:x} only", outcome.call, mask,
                     known_events(api())));
}

RULE_ON(ProfilerRule, PI_03, Must, ApiRange::profiler(),  //
        .title = "each communicator can be finalized, in any order",
        .text =
            "Several contexts exist at a time. finalize of each succeeds in any order, and init works as long as one "
            "exists. Up to v4, a plugin that stored no context is finalized too.",
        .source = "plugin/profiler.cc: ncclProfilerPluginFinalize, once for each communicator",
        .why = "A process has one context for each communicator and GPU, and destroys them in any order.",
        .check = "Opens and finalizes 12 contexts in a random order, of which 1 to 4 exist at a time.",
        .blind = "Contexts with events in progress.") {
  Rank rank = near_rank({.state = RankState::kLoaded, .fresh = true});
  std::vector<std::uint64_t> contexts;
  const auto finalize = [&](std::uint64_t context) { rank.call("finalize", {{"context", context}}); };
  for (int number = 0; number < 12; ++number) {
    const CallOutcome outcome = init_without_preset(rank, number);
    if (number == 0) require_first_init(outcome);
    require_success(outcome);
    const std::uint64_t opened = outcome.pointer("*context");
    // NCCL 2.28, the first with v5, calls finalize only with a context.
    if (opened == 0 && api() >= 5) continue;
    contexts.push_back(opened);
    if (contexts.size() == 4) end_all_but(1, contexts, finalize);
  }
  end_all_but(0, contexts, finalize);
}

RULE_ON(
    ProfilerRule, PI_10, Must, ApiRange::profiler(),  //
    .title = "the plugin can be initialized again",
    .text =
        "init succeeds after the last context was finalized, even after the library was closed and opened again. If it "
        "fails, *context stays NULL.",
    .source = "plugin/profiler.cc: ncclProfilerPluginInit, ncclProfilerPluginUnload, ncclProfilerPluginFinalize",
    .why =
        "NCCL closes the library with the last communicator. After a failed init it calls finalize if the context is "
        "not NULL.",
    .check = "Initializes, plays operations and finalizes three times, and closes and opens the library in between.",
    .blind = "Causes that make a first init fail.") {
  Rank rank = new_rank();
  for (int round = 0; round < 3; ++round) {
    const CallOutcome outcome = try_init(rank, round);
    const std::uint64_t stored = outcome.pointer("*context");
    const std::string failure = fmt::format("{} returned {}", outcome.call, result_name(outcome.code));
    expect(outcome.ok() || stored == 0,
           [&] { return fmt::format("{} and stored the context 0x{:x}, expected NULL", failure, stored); });
    if (round == 0) require_first_init(outcome);
    expect(outcome.ok(), [&] {
      return fmt::format("{} after all contexts were finalized{}", failure,
                         round == 2 ? " and the library was opened again" : "");
    });
    const ProfiledCommunicator communicator = {stored, outcome.integer("*eActivationMask")};
    EventScript script = operations(rank, communicator);
    play(rank, script);
    close(rank, communicator);
    if (round != 1) continue;
    rank.unload();
    rank.load();
  }
}

RULE_ON(
    ProfilerRule, PI_16, Should, ApiRange::profiler(),  //
    .title = "communicators need no name",
    .text = "commName of init is NULL for a communicator without a name. Up to v3, so are the names in descriptors.",
    .source = "plugin/profiler.cc: ncclProfilerPluginInit; plugin/profiler/profiler_v*.cc: ncclProfiler_startEvent",
    .why = "Few applications name their communicators: the plugin crashes in all others.",
    .check = "Calls init without a name, plays operations without names, and finalizes.",
    .blind = "A plugin that reads the name later, for example when it writes a file.") {
  Rank rank = new_rank();
  const CallOutcome outcome = try_init(rank, 0, false);
  if (!outcome.ok()) {
    Rank named = new_rank();
    require_first_init(try_init(named, 0));
  }
  expect(outcome.ok(), [&] { return fmt::format("{} returned {}", outcome.call, result_name(outcome.code)); });
  const ProfiledCommunicator communicator = {outcome.pointer("*context"), outcome.integer("*eActivationMask")};
  EventScript script = operations(rank, communicator, false);
  play(rank, script);
  close(rank, communicator);
}

}  // namespace plugfest::conformance
