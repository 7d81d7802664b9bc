// PF rules: the events that a plugin reports through the profiler callback of init, and the phandles of isend and
// irecv. A plugin need not report any. There is no PF-08: IN-14 (init.cc) checks that case.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "conformance/net/script/profiler_events.h"
#include "conformance/rules/rule_body.h"
#include "fabric/system/text.h"
#include "harness/abi/profiler.h"

namespace plugfest::conformance {

namespace {

bool is_start(const ProfilerCall& call) { return call.type == abi::kProfilerNetStart; }

}  // namespace

RULE_ON(
    ProfilerCallbackRule, PF_01, Should, ApiRange::from(10),  //
    .title = "no event starts with a phandle that is NULL",
    .text =
        "If the phandle of an isend, an entry of an irecv's phandles, or phandles itself is NULL, the plugin starts "
        "no event for that buffer.",
    .source =
        "plugin/profiler.cc: ncclProfilerCallback reads *pHandle if a profiler is loaded; SHARP passes NULL, and "
        "bootstrap.cc with NCCL_OOB_NET_ENABLE=1",
    .why = "With a profiler, NCCL's callback reads memory at address 0, and the job crashes.",
    .check =
        "Delivers messages and groups whose phandles are all NULL, then such whose irecv gets no phandles, after "
        "others with phandles, and looks at each start.",
    .blind = "Groups in which some phandles are NULL: NCCL posts none.") {
  std::vector<ProfilerReport> reports = delivered_events();
  for (const bool array : {true, false}) {
    probe([&] {
      for (ProfilerReport& report : deliver_messages({.phandles = false, .phandle_array = array}))
        reports.push_back(std::move(report));
    });
  }
  refuse_calls(reports, ", and NCCL crashes in the callback",
               [](const ProfilerReport&, const ProfilerCall& call) { return is_start(call) && call.phandle == 0; });
}

RULE_ON(
    ProfilerCallbackRule, PF_02, Must, ApiRange::from(10),  //
    .title = "events start with the phandles that NCCL passed",
    .text =
        "The phandle of a start comes from an isend or from the array phandles of an irecv. The array is gone when "
        "irecv returns; the plugin copies the entries that it uses later.",
    .source = "transport/net.cc: phandles is a local array of recvProxyProgress; ncclProfilerCallback reads *pHandle",
    .why = "With a profiler, NCCL's callback reads memory at an arbitrary address, and the job crashes.",
    .check =
        "Gives each buffer a phandle of its own, overwrites the array after each irecv, and looks for the phandle "
        "of each start.",
    .blind = "A read of the array between the return of irecv and its reuse on another stack.") {
  refuse_calls(delivered_events(), ", which no isend or irecv had",
               [](const ProfilerReport& report, const ProfilerCall& call) {
                 return is_start(call) && call.phandle != 0 && report.request_with(call.phandle) == nullptr;
               });
}

RULE_ON(ProfilerCallbackRule, PF_03, Must, ApiRange::from(10),  //
        .title = "each event has its own handle, first NULL",
        .text =
            "eHandle is the address of a pointer in the plugin's memory. It is NULL when the event starts, belongs to "
            "no other event until the event stops, and the plugin does not change it. [S]: a handle that the profiler "
            "stored for an earlier event is cleared.",
        .source =
            "plugin/profiler.cc: ncclProfilerCallback stores nothing if the profiler does not watch net plugins, and "
            "passes *eHandle to stopEvent without a check",
        .why = "The profiler gets a handle that it has not made, and crashes, or stops the event of another message.",
        .check =
            "Reads and writes *eHandle in each call, stores another handle at each start, and compares the handles of "
            "later calls with it. Delivers messages again without storing handles.",
        .blind = "Changes between two calls that are undone.") {
  // In new processes, all handles that were ever stored are known.
  near_endpoint({.fresh = true});
  far_endpoint({.fresh = true});
  std::vector<ProfilerReport> reports = delivered_events();
  for (ProfilerReport& report : deliver_messages({.answers = {.stores_handles = false}}))
    reports.push_back(std::move(report));
  refuse_calls(reports, ", where no pointer can be read and written",
               [](const ProfilerReport&, const ProfilerCall& call) { return !call.accessible; });
  std::map<std::string, std::set<std::uint64_t>> stored_in;  // by rank
  bool warned = false;
  for (const ProfilerReport& report : reports) {
    std::map<std::uint64_t, std::uint64_t> open;  // the handle of each event that is not stopped, by eHandle
    std::set<std::uint64_t>& stored = stored_in[report.rank];
    for (const ProfilerCall& call : report.calls) {
      if (!is_start(call)) {
        const auto started = open.find(call.event);
        if (started == open.end()) continue;  // PF-04
        expect(call.handle_before == started->second, [&] {
          return report.describe(call) + fmt::format(", whose handle is {:#x}, expected {:#x} as after the start",
                                                     call.handle_before, started->second);
        });
        if (call.type != abi::kProfilerNetUpdate) open.erase(started);
        continue;
      }
      expect(!open.contains(call.event),
             [&] { return report.describe(call) + ", which belongs to an event that is not stopped"; });
      const bool stale = stored.contains(call.handle_before);
      expect(call.handle_before == 0 || stale, [&] {
        return report.describe(call) + fmt::format(", whose handle is {:#x}, expected NULL", call.handle_before);
      });
      should(!stale || std::exchange(warned, true),
             report.describe(call) + ", whose handle belongs to an earlier event, expected NULL");
      open.insert_or_assign(call.event, call.handle_after);
      if (call.handle_after != 0) stored.insert(call.handle_after);
    }
  }
}

// NCCL's own IB transport breaks this rule if it is built with NET_PROFILER=1: in 2.28 to 2.30, test stops an event for
// the completion of its work, and again for the request.
RULE_ON(
    ProfilerCallbackRule, PF_04, Must, ApiRange::from(10),  //
    .title = "each event stops once, before its request is done",
    .text =
        "An event starts while its request is in flight. One call of type stop, or update-and-stop, with the same "
        "eHandle follows before test reports the request as done, and updates only in between. After an error or a "
        "close, events may stay open.",
    .source =
        "transport/net.cc: pHandles are reused when a step is done; ext-profiler README: after stopEvent a handle "
        "can no longer be used",
    .why =
        "A profiler frees an event when it stops. A second stop, or a stop after the communicator's end, uses freed "
        "memory; a missing stop loses the event and all of its parents.",
    .check =
        "Delivers messages and groups, and follows the calls for each eHandle. Compares their times with the end "
        "of the test that reported the request as done.",
    .blind = "Rare races between test and a thread of the plugin that stops the event.",
    .faults = {{"NVIDIA/nccl#2112", "a job crashed when its profiler recorded all kinds of events"},
               {"NVIDIA/nccl#1992", "a profiler crashed, probably on an update after a stop"}}) {
  for (const ProfilerReport& report : delivered_events())
    if (const std::string flaw = report.flaw_in_order(); !flaw.empty()) broken(flaw);
}

RULE_ON(ProfilerCallbackRule, PF_05, Must, ApiRange::from(10),  //
        .title = "an event with a known id has its structure",
        .text =
            "At a start with the id of NCCL's IB or socket transport, extData is the address of the whole structure of "
            "that id. It is read during the call only.",
        .source = "ext-profiler README: ncclProfileNetPlugin; include/plugin/profiler/net_ib_v1.h, net_socket_v1.h",
        .why = "Profilers select the structure by the id and read it without a check.",
        .check =
            "Delivers messages and groups, and reads 40 bytes (IB, version 1) or 24 bytes (sockets, version 1) at "
            "extData of each start with these ids.",
        .blind = "The content of the structure, and the structures of other ids.") {
  refuse_calls(delivered_events(), ", whose extData is not the structure of its id",
               [](const ProfilerReport&, const ProfilerCall& call) {
                 std::size_t needed = 0;
                 if (call.plugin_id == abi::kProfilerQueuePairId) needed = sizeof(abi::ProfilerQueuePairEvent);
                 if (call.plugin_id == abi::kProfilerSocketId) needed = sizeof(abi::ProfilerSocketEvent);
                 return is_start(call) && call.readable_bytes < needed;
               });
}

RULE_ON(
    ProfilerCallbackRule, PF_06, Should, ApiRange::from(10),  //
    .title = "events end with the comm",
    .text = "The plugin calls the callback neither in init nor after the close of the comm, nor in finalize.",
    .source = "init.cc: NCCL finalizes the profiler before the net; init of the profiler follows init of the net",
    .why = "The profiler has no context of the communicator yet, or has freed it with all its events.",
    .check = "Records calls from before init to after finalize, and compares their times with the end of the close.",
    .blind = "Calls of a thread that starts later.") {
  Rank near = near_rank({.state = RankState::kLoaded, .fresh = true});
  Rank far = far_rank({.state = RankState::kLoaded, .fresh = true});
  const auto refuse_all = [&](Rank& rank, const std::string& when) {
    ProfilerReport report;
    report.rank = rank.name();
    report.calls = rank.profiler_calls();
    refuse_calls({report}, when, [](const ProfilerReport&, const ProfilerCall&) { return true; });
  };
  for (Rank rank : {near, far}) {
    rank.record_profiler();
    rank.init({.context = Preset::kNull});
    rank.devices();
    refuse_all(rank, " before the first connection");
  }
  const std::vector<ProfilerReport> reports = delivered_events();
  refuse_calls(reports, " after the close of its comm",
               [](const ProfilerReport& report, const ProfilerCall& call) { return call.at_ns > report.closed_ns; });
  for (Rank rank : {near, far}) {
    rank.finalize(rank.contexts().front());
    refuse_all(rank, " after the close of its comm");
  }
}

RULE_ON(
    ProfilerCallbackRule, PF_07, Should, ApiRange::from(10),  //
    .title = "a result of the callback does not affect messages",
    .text = "If the callback returns an error, isend, irecv and test work as with ncclSuccess.",
    .source = "ext-net README: ncclProfilerCallback_t; plugin/profiler.cc: NCCL's own callback returns ncclSuccess",
    .why = "Otherwise an error of the profiler, which only observes, ends the job.",
    .check =
        "Lets the callback return each error from ncclUnhandledCudaError to ncclRemoteError, and delivers messages.") {
  require_events(deliver_messages());
  for (int result = kUnhandledCudaError; result <= kRemoteError; ++result)
    deliver_messages({.answers = {.result = result}});
}

RULE_ON(
    ProfilerCallbackRule, PF_09, Must, ApiRange::from(10),  //
    .title = "the events of a group use the phandle of their buffer",
    .text =
        "An event of buffer i of a grouped irecv starts with phandles[i], and an event of a send with its own phandle.",
    .source = "transport/net.cc: recvProxyProgress stores a phandle for each sub-operation of the group",
    .why = "The profiler shows the traffic of one channel or peer under another one.",
    .check =
        "Counts the events of single messages, then delivers groups of messages of one size. If a group has as many "
        "events for each of its buffers, each phandle of the group has some.",
    .blind = "Two buffers whose phandles are exchanged.") {
  widest_group();
  for (const ProfilerReport& report : delivered_events()) {
    const std::size_t of_single = report.starts_with(report.single);
    if (of_single == 0) continue;
    for (const std::vector<std::uint64_t>& group : report.groups) {
      std::vector<std::size_t> starts;
      for (const std::uint64_t phandle : group) starts.push_back(report.starts_with(phandle));
      const std::size_t total = std::accumulate(starts.begin(), starts.end(), std::size_t{0});
      const auto without = std::find(starts.begin(), starts.end(), 0);
      // Fewer events may belong to the whole group.
      if (total < group.size() * of_single || without == starts.end()) continue;
      broken(
          fmt::format("rank {}: the events of a group of {} messages have the phandles of its buffers {} times; "
                      "buffer {} has no event",
                      report.rank, group.size(), fmt::join(starts, ", "), without - starts.begin()));
    }
  }
}

RULE_ON(
    ProfilerCallbackRule, PF_10, Should, ApiRange::from(11),  //
    .title = "the events of a context go to the callback of its init",
    .text = "A plugin calls for each comm the callback that the init of the comm's context had.",
    .source = "plugin/net.cc: ncclNetPluginInit; NCCL passes the same function to each init, other programs need not",
    .why = "A program with a callback for each communicator gets the events of the others.",
    .check =
        "Calls init again with another callback, and delivers messages over a connection of the first context, then "
        "over one of the second.") {
  Endpoint near = near_endpoint({.fresh = true}), far = far_endpoint({.fresh = true});
  for (Rank rank : {near.rank, far.rank}) rank.init({.context = Preset::kNull, .profiler = 2});
  for (const int callback : {1, 2}) {
    const auto context = static_cast<std::size_t>(callback - 1);
    Listener listener = far.rank.listen(far.device, {.context = far.rank.contexts().at(context)});
    auto [send, receive] =
        finish(near.rank.connect(near.device, listener.handle(), {.context = near.rank.contexts().at(context)}),
               far.rank.accept(listener));
    listener.close();
    const std::vector<ProfilerReport> reports = deliver_messages_over({send, receive});
    require_events(reports);
    refuse_calls(
        reports,
        fmt::format(" by the callback of context {}, expected the callback of context {}", 3 - callback, callback),
        [&](const ProfilerReport&, const ProfilerCall& call) { return call.callback != callback; });
  }
}

RULE_ON(ProfilerCallbackRule, PF_11, Should, ApiRange::from(10),  //
        .title = "the id of an event names a type and a version",
        .text =
            "In the pluginId of a start, bits 0 to 15 are a version of the structure, bits 16 to 31 the type of the "
            "plugin; neither is 0. The others are 0. All events of a type have one version.",
        .source = "ext-profiler README: network plugin events; include/plugin/profiler/net_ib.h",
        .why = "Profilers cannot determine the structure of an event with another id: they ignore it or misread it.",
        .check = "Delivers messages and groups, and looks at the id of each start.",
        .blind = "Whether another plugin has the same type.") {
  std::map<std::int64_t, std::int64_t> versions;
  refuse_calls(delivered_events(), " with an id that is not one version and one type",
               [&](const ProfilerReport&, const ProfilerCall& call) {
                 if (!is_start(call)) return false;
                 const std::int64_t version = call.plugin_id & 0xffff, type = call.plugin_id >> 16;
                 const bool is_known = versions.try_emplace(type, version).first->second == version;
                 return version == 0 || type <= 0 || type > 0xffff || !is_known;
               });
}

RULE_ON(ProfilerCallbackRule, PF_12, Info, ApiRange::from(10),  //
        .title = "events per message", .text = "Records how many events the plugin reports for its messages.",
        .source = "ext-profiler README: a net plugin defines its own events",
        .why = "Each event costs time in the thread that makes progress.",
        .check = "Delivers messages and groups, and counts the starts in each rank.") {
  for (const ProfilerReport& report : delivered_events()) {
    std::size_t buffers = 0;
    for (const ProfiledRequest& request : report.requests) buffers += request.phandles.size();
    observe(fmt::format("rank {}: {} for {}", report.rank, counted(report.starts().size(), "event"),
                        counted(buffers, "message")));
  }
}

}  // namespace plugfest::conformance
