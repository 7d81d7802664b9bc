// PI rules: startEvent, stopEvent and recordEventState of a profiler plugin, call by call.
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/interfaces/profiler_rule.h"

namespace plugfest::conformance {

RULE_ON(
    ProfilerRule, PI_04, Must, ApiRange::profiler(),  //
    .title = "the plugin accepts all events of operations",
    .text =
        "The plugin takes the events of collectives, point-to-point operations and the proxy that its activation mask "
        "asks for, and those that NCCL starts as their parents. An operation is stopped when it has been launched: its "
        "children start after that. [S]: all calls return Success.",
    .source =
        "plugin/profiler.cc: ncclProfilerStartTaskEvents, ncclProfilerStartProxyOpEvent, ncclProfilerCallback; "
        "enqueue.cc and proxy.cc call them",
    .why = "A plugin that frees an event when it is stopped crashes the job when the transfers of the event start.",
    .check =
        "Plays a collective and a send twice, on the threads main and prog: the calls of the API, the group, the "
        "operation, the kernel, eight transfers and an event of the net plugin for each. v6: it also plays a "
        "collective of the copy engine. Descriptors are overwritten after each call.",
    .blind = "What the plugin records. v7: states of the phases of kernels.",
    .faults = {{"NVIDIA/nccl#2000", "an event of a kernel was used after its collective had been freed"},
               {"NVIDIA/nccl#1569", "groups without proxy operations were never released"}}) {
  Rank rank = new_rank();
  const ProfiledCommunicator communicator = open(rank);
  EventScript script = operations(rank, communicator);
  for (int i = 0; i < 2; ++i) play(rank, script);
  close(rank, communicator);
}

RULE_ON(
    ProfilerRule, PI_05, Must, ApiRange::profiler(),  //
    .title = "calls with a NULL handle have no effect",
    .text =
        "stopEvent and, from v4 on, recordEventState with the state NetPluginUpdate accept the handle NULL, whatever "
        "the activation mask is.",
    .source = "plugin/profiler.cc: ncclProfilerCallback, which checks no handle",
    .why =
        "A net plugin that reports events, such as NCCL's own for InfiniBand, stops and updates those that the "
        "profiler did not ask for, and the job crashes.",
    .check = "Makes both calls on two threads.", .blind = "Other states, which NCCL records for no NULL handle.") {
  Rank rank = new_rank();
  const ProfiledCommunicator communicator = open(rank, 0, kNoEvent);
  for (const char* const thread : {"main", "prog"}) {
    const std::vector<std::byte> arguments(sizeof(void*));
    if (api() >= 4)
      rank.on(thread).try_call("recordEventState",
                               {{"eHandle", 0}, {"eState", int{abi::kStateNetUpdate}}, {"eStateArgs", arguments}});
    rank.on(thread).try_call("stopEvent", {{"eHandle", 0}});
  }
  close(rank, communicator);
}

RULE_ON(ProfilerRule, PI_06, Must, ApiRange::profiler(),  //
        .title = "startEvent always writes the handle",
        .text =
            "startEvent stores a handle in *eHandle, or NULL for an event that the plugin does not record, including "
            "when it has no more room for events. [S]: this holds for events of the copy engine.",
        .source =
            "proxy.cc: ncclProxyGetPostedOps, whose eHandle has no value before; plugin/profiler.cc: NCCL ignores "
            "the result of startEvent, and stops what is in *eHandle",
        .why = "Otherwise NCCL stops an invalid pointer, or an event that has already ended.",
        .check =
            "Plays all operations with poison in *eHandle, starts an event of the net plugin whose transfer has ended, "
            "and repeats this until 100,000 events have started.",
        .blind = "A plugin that stores the same handle for several events.") {
  Rank rank = new_rank();
  const ProfiledCommunicator communicator = open(rank);
  EventScript script(rank, communicator);
  script.add_operation(abi::kProfileColl);
  script.add_control();
  script.add_operation(abi::kProfileP2p);
  if (script.wants(abi::kProfileNetPlugin)) script.stop(script.start(abi::kProfileNetPlugin));
  const auto message = [&](const std::string& call) {
    return fmt::format("rank {}: {} did not write *eHandle, expected a handle or NULL", rank.name(), call);
  };
  for (const std::string& event : play(rank, script)) broken(message(fmt::format("startEvent({})", event)));
  constexpr std::uint64_t kEvents = 100'000;
  const CallScriptOutcome outcome = start_script(rank, script.with_events(kEvents)).get();
  expect(outcome.unwritten.empty(), [&] { return message(outcome.unwritten); });
  EventScript copy_engine(rank, communicator);
  copy_engine.add_copy_engine_operation();
  const CallScriptOutcome copied = start_script(rank, copy_engine.with_events(kEvents)).get();
  should(copied.unwritten.empty(), [&] { return message(copied.unwritten); });
  close(rank, communicator);
}

RULE_ON(
    ProfilerRule, PI_07, Should, ApiRange::profiler(),  //
    .title = "unknown events and states have no effect",
    .text =
        "startEvent for a type that the version does not know stores NULL in *eHandle. recordEventState ignores states "
        "that it does not know. All of these calls return Success.",
    .source = "include/plugin/nccl_profiler.h: the states of v1 to v6 are one type; plugins/profiler/README.md",
    .why = "All versions share one list of events and one of states, which grow with NCCL's releases.",
    .check = "Starts events of one to three types without a meaning, and records two such states for a group.",
    .blind = "Known states for an event of another type.") {
  probe([&] {
    Rank rank = new_rank();
    const ProfiledCommunicator communicator = open(rank);
    EventScript script(rank, communicator);
    std::vector<std::uint64_t> types = {0};
    if (api() <= 2) types.insert(types.end(), {0x40, 0x80});
    if (api() >= 5) types.insert(types.end(), {1 << 20, std::uint64_t{1} << 40});
    for (const std::uint64_t type : types) script.start(type);
    const std::size_t unknown = script.calls().size();
    const EventScript::Event group = script.start(api() >= 5 ? abi::kProfileGroupApi : abi::kProfileGroup);
    for (const int state : {31, 1000}) script.record(group, state);
    script.stop(group);
    for (std::size_t i = 0; i < script.calls().size(); ++i) {
      const EventScript::Call& call = script.calls()[i];
      const bool written = play(rank, script, call);
      if (i >= unknown) continue;
      const std::string event = fmt::format("rank {}: startEvent({})", rank.name(), call.step.about);
      expect(written, event + " did not write *eHandle, expected NULL");
      const std::uint64_t handle = script.slots()[call.starts];
      should(handle == 0, [&] { return fmt::format("{} stored the handle 0x{:x}, expected NULL", event, handle); });
    }
    close(rank, communicator);
  });
}

RULE_ON(ProfilerRule, PI_12, Must, ApiRange::profiler(),  //
        .title = "the parent of a foreign proxy operation is not read",
        .text =
            "parentObj of a proxy operation whose pid belongs to another process is a pointer of that process. The "
            "plugin does not read it.",
        .source = "plugin/profiler.cc: ncclProfilerAddPidToProxyOp; plugins/profiler/example/plugin.cc: detachPool",
        .why = "With PXN, the proxy of one process sends for the GPUs of others, and the pointer is not valid there.",
        .check = "Plays two such operations with eight transfers each. Their parent is an address without memory.",
        .blind = "Contexts of other processes, which NCCL passes too.",
        .faults = {{"NVIDIA/nccl#1586", "with PXN, NCCL passed the context of another process"}}) {
  Rank rank = new_rank();
  const ProfiledCommunicator communicator =
      open(rank, 0, abi::kProfileProxyOp | abi::kProfileProxyStep | abi::kProfileNetPlugin);
  EventScript script(rank, communicator);
  const Memory memory = rank.allocate(64);
  const std::uint64_t no_memory = memory.address() + memory.size();  // its guard page
  for (const bool sends : {true, false}) script.add_proxy_operation({.foreign = no_memory}, sends);
  play(rank, script);
  close(rank, communicator);
}

RULE_ON(ProfilerRule, PI_13, Must, ApiRange::profiler(5),  //
        .title = "states of the group API have no arguments",
        .text = "eStateArgs of recordEventState is NULL for the states GroupStartApiStop and GroupEndApiStart.",
        .source = "plugin/profiler.cc: ncclProfilerRecordGroupApiEventState",
        .why = "NCCL records both states for each call of the API: the plugin crashes in the first collective.",
        .check = "Starts an event of the group API, records both states without arguments, and stops the event.",
        .blind = "Arguments that are NULL in other states.") {
  Rank rank = new_rank();
  const ProfiledCommunicator communicator = open(rank, 0, ~abi::kProfileProxyCtrl);
  EventScript script(rank, communicator);
  const EventScript::Event group = script.start(abi::kProfileGroupApi);
  for (const int state : {abi::kStateGroupStartStop, abi::kStateGroupEndStart})
    script.record_without_arguments(group, state);
  script.stop(group);
  play(rank, script);
  close(rank, communicator);
}

}  // namespace plugfest::conformance
