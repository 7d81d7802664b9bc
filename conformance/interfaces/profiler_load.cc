// PI rules: threads, many events, memory and time of a profiler plugin, and events that are open in finalize.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "conformance/interfaces/profiler_rule.h"
#include "harness/traffic/growth.h"

namespace plugfest::conformance {

namespace {

double nanoseconds_of_call(const CallScriptOutcome& outcome, std::uint64_t count) {
  return static_cast<double>(outcome.median_ns) * static_cast<double>(count) / static_cast<double>(outcome.calls);
}

}  // namespace

RULE_ON(
    ProfilerRule, PI_08, Must, ApiRange::profiler(),  //
    .title = "threads report events at the same time",
    .text =
        "Threads of several communicators, and the application's thread and the proxy's of one communicator, make "
        "calls at the same time. [S]: all calls return Success.",
    .source = "proxy.cc: ncclProxyProgress, a thread of each communicator; enqueue.cc: the application's threads",
    .why = "A race in the profiler crashes the job, often only after hours.",
    .check =
        "Four threads start 100,000 events each: two play operations on a communicator each, and two play what the "
        "proxies of these communicators do. If the mask asks for nothing of the proxies, these also play operations.",
    .blind = "Data races that change no handle. A plugin built with -fsanitize=thread shows them.") {
  Rank rank = new_rank();
  const ProfiledCommunicator first = open(rank, 0);
  std::vector<ProfiledCommunicator> communicators = {first, open(rank, 1)};
  std::vector<EventScript> scripts;
  for (std::size_t i = 0; i < 2; ++i) scripts.push_back(operations(rank, communicators[i]));
  for (std::size_t i = 0; i < 2; ++i) {
    EventScript proxy(rank, communicators[i]);
    proxy.add_control();
    constexpr int kOperations = abi::kProfileProxyOp | abi::kProfileProxyStep | abi::kProfileNetPlugin;
    if (proxy.wants(kOperations)) proxy.add_proxy_operation({.foreign = 1}, true);
    if (!proxy.calls().empty()) {
      scripts.push_back(proxy);
      continue;
    }
    communicators.push_back(open(rank, static_cast<int>(communicators.size())));
    scripts.push_back(operations(rank, communicators.back()));
  }
  const auto start = [&](std::size_t i) {
    return start_script(rank.on(fmt::format("app{}", i)), scripts[i].with_events(repeated(std::uint64_t{100'000})));
  };
  std::vector<Started<CallScriptOutcome>> started;
  for (std::size_t i = 0; i < scripts.size(); ++i) started.push_back(start(i));
  std::vector<CallScriptOutcome> outcomes;
  for (Started<CallScriptOutcome>& thread : started) outcomes.push_back(thread.get());
  for (std::size_t i = 0; i < scripts.size(); ++i) {
    const CallScriptOutcome& outcome = outcomes[i];
    if (outcome.unwritten.empty() && outcome.failed.empty()) continue;
    const CallScriptOutcome alone = start(i).get();  // PI-04 and PI-06 check what other threads do not cause
    expect(outcome.unwritten.empty() || !alone.unwritten.empty(), [&] {
      return fmt::format("rank {}: {} did not write *eHandle while other threads made calls", rank.name(),
                         outcome.unwritten);
    });
    should(outcome.failed.empty() || !alone.failed.empty(),
           [&] { return fmt::format("rank {}: {} while other threads made calls", rank.name(), outcome.failed); });
  }
  for (const ProfiledCommunicator& communicator : communicators) close(rank, communicator);
}

RULE_ON(ProfilerRule, PI_09, Must, ApiRange::profiler(),  //
        .title = "finalize returns while events are open",
        .text = "finalize returns while events of its communicator are open, and other communicators stay usable.",
        .source = "init.cc: commFree, after ncclCommAbort stopped the proxy in the middle of its operations",
        .why = "An application that aborts a communicator after an error hangs or crashes instead of going on.",
        .check =
            "Plays operations whose events are not stopped, finalizes their communicator, and plays all operations on "
            "another communicator and on a new one.",
        .blind = "Memory of events that are never stopped.") {
  Rank rank = new_rank();
  const ProfiledCommunicator aborted = open(rank, 0), other = open(rank, 1);
  EventScript open_events = operations(rank, aborted);
  for (const EventScript::Call& call : open_events.calls())
    if (call.step.function != "stopEvent") play(rank, open_events, call);
  close(rank, aborted);
  EventScript script = operations(rank, other);
  play(rank, script);
  close(rank, other);
  const ProfiledCommunicator again = open(rank, 2);
  EventScript next = operations(rank, again);
  play(rank, next);
  close(rank, again);
}

RULE_ON(
    ProfilerRule, PI_11, Should, ApiRange::profiler(),  //
    .title = "events leave nothing behind",
    .text =
        "After its events were stopped, the process has as many descriptors and threads and as much memory as before.",
    .source = "applications that run for weeks",
    .why = "If each event leaves something behind, the memory of a job grows until it is killed.",
    .check =
        "Plays operations with 1,000,000 events, and compares the descriptors, threads and resident memory of the "
        "process after each of three batches. What grows in every batch leaks.",
    .blind = "Leaks of less than 16 bytes for each event.") {
  Rank rank = new_rank();
  const ProfiledCommunicator communicator = open(rank);
  const EventScript script = operations(rank, communicator);
  constexpr int kEvents = 250'000;
  const auto work = [&] { start_script(rank, script.with_events(kEvents)).get(); };
  for (const std::string& leak :
       traffic::growth({rank}, stall_limit(),
                       {.calls = repeated(1), .units = kEvents, .name = "events", .least_bytes = 16, .work = work}))
    should(false, leak);
  close(rank, communicator);
}

RULE_ON(
    ProfilerRule, PI_14, Should, ApiRange::profiler(),  //
    .title = "calls are short",
    .text = "A call takes on average at most 100 times as long as one of an empty profiler.",
    .source = "proxy.cc: ncclProxyProgress reports events between the steps of its transfers",
    .why = "The proxy's thread drives all transfers of a communicator: they wait while it is in the profiler.",
    .check =
        "Plays operations and the same calls of an empty function in turn, and compares the times of both. The least "
        "of five medians counts, so that other programs have no influence.",
    .blind = "Calls that are slow now and then, for example when a buffer is full.") {
  Rank rank = new_rank();
  const ProfiledCommunicator communicator = open(rank);
  const EventScript script = operations(rank, communicator);
  constexpr std::uint64_t kCount = 50;
  constexpr double kMaxRatio = 100;
  double plugin_ns = std::numeric_limits<double>::max(), empty_ns = plugin_ns;
  for (int i = 0; i < 5; ++i) {
    plugin_ns = std::min(plugin_ns, nanoseconds_of_call(start_script(rank, script.repeated(kCount)).get(), kCount));
    empty_ns = std::min(empty_ns, nanoseconds_of_call(start_script(rank, script.repeated(kCount, true)).get(), kCount));
  }
  expect(plugin_ns <= kMaxRatio * empty_ns, [&] {
    return fmt::format(
        "rank {}: calls for events take {:.0f} ns on average, {:.0f} times as long as an empty function, expected at "
        "most {:.0f} times",
        rank.name(), plugin_ns, plugin_ns / empty_ns, kMaxRatio);
  });
  observe(fmt::format("calls for events take {:.0f} ns on average", plugin_ns));
  close(rank, communicator);
}

RULE_ON(ProfilerRule, PI_15, Must, ApiRange::profiler(),  //
        .title = "events outlive other communicators",
        .text =
            "startEvent, recordEventState and stopEvent work for events of one communicator after others were "
            "finalized.",
        .source = "plugin/profiler.cc: ncclProfilerPluginFinalize, once for each communicator of the process",
        .why = "An application that destroys one communicator crashes in the transfers of another.",
        .check =
            "Plays operations on one communicator, and finalizes another one after each of the first three quarters of "
            "the calls.",
        .blind = "Calls for a communicator that has itself been finalized, which NCCL does not make.",
        .faults = {{"NVIDIA/nccl#1992", "NVIDIA's Inspector crashed in recordEventState"}}) {
  Rank rank = new_rank();
  const ProfiledCommunicator communicator = open(rank);
  std::vector<ProfiledCommunicator> others;
  for (int number = 1; number <= 3; ++number) others.push_back(open(rank, number));
  EventScript script = operations(rank, communicator);
  const std::size_t quarter = script.calls().size() / 4;
  for (std::size_t i = 0; i < script.calls().size(); ++i) {
    if (!others.empty() && i == quarter * (4 - others.size())) {
      close(rank, others.back());
      others.pop_back();
    }
    play(rank, script, script.calls()[i]);
  }
  close(rank, communicator);
}

}  // namespace plugfest::conformance
