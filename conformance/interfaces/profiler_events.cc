#include "conformance/interfaces/profiler_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "harness/control/call.h"

namespace plugfest::conformance {

namespace {

using Source = wire::CallScript::Source;
using wire::CallScript;

constexpr EventScript::Event kContext = 1;  ///< the slot of the context
constexpr int kSteps = 8;

// The events for which NCCL starts others as parents.
constexpr int kCopyEngine = abi::kProfileCeColl | abi::kProfileCeSync | abi::kProfileCeBatch;
constexpr int kTransfers = abi::kProfileProxyStep | abi::kProfileNetPlugin;
constexpr int kOperations = abi::kProfileProxyOp | kTransfers;
constexpr int kUnderTasks = kOperations | abi::kProfileKernelCh;
constexpr int kUnderGroups = abi::kProfileGroup | abi::kProfileColl | abi::kProfileP2p | kUnderTasks;
constexpr int kUnderApi = kUnderGroups | abi::kProfileGroupApi | abi::kProfileCollApi | abi::kProfileP2pApi |
                          abi::kProfileKernelLaunch | kCopyEngine;

constexpr std::string_view kNames[] = {"Group",    "Coll",      "P2p",      "ProxyOp",    "ProxyStep", "ProxyCtrl",
                                       "KernelCh", "NetPlugin", "GroupApi", "CollApi",    "P2pApi",    "KernelLaunch",
                                       "CeColl",   "CeSync",    "CeBatch",  "KernelPhase"};

}  // namespace

int known_events(int api) {
  if (api >= 7) return 0xffff;
  if (api == 6) return 0x7fff;
  if (api == 5) return 0xfff;
  return api >= 3 ? 0xff : 0x3f;
}

std::string event_name(std::uint64_t type) {
  for (std::size_t bit = 0; bit < std::size(kNames); ++bit)
    if (type == std::uint64_t{1} << bit) return std::string(kNames[bit]);
  return fmt::format("type 0x{:x}", type);
}

EventScript::EventScript(control::Rank& rank, const ProfiledCommunicator& communicator)
    : api_(rank.api()),
      mask_(communicator.mask & known_events(rank.api())),
      descriptors_(rank),
      slots_{0, communicator.context} {
  if ((mask_ & abi::kProfileKernelPhase) != 0) mask_ |= abi::kProfileKernelCh;
}

wire::CallScript EventScript::repeated(std::uint64_t count, bool empty) const {
  CallScript script;
  script.slots = slots_;
  script.preset = control::kPoison;
  script.count = count;
  script.empty = empty;
  for (const Call& call : calls_) script.steps.push_back(call.step);
  return script;
}

wire::CallScript EventScript::with_events(std::uint64_t events) const {
  const auto starts = static_cast<std::uint64_t>(
      std::count_if(calls_.begin(), calls_.end(), [](const Call& call) { return call.starts != kNull; }));
  return repeated(1 + events / std::max<std::uint64_t>(1, starts));
}

EventScript::Event EventScript::start(std::uint64_t type, const EventParents& parents) {
  const auto event = static_cast<Event>(slots_.size());
  slots_.push_back(0);
  names_[event] = event_name(type);
  add("startEvent", names_[event],
      {{.source = Source::kSlot, .number = kContext},
       {.source = Source::kOutput, .number = event},
       descriptors_.describe(type, parents)},
      kNull, event);
  return event;
}

EventScript::Event EventScript::start_if(int events, std::uint64_t type, const EventParents& parents) {
  return wants(events) && (static_cast<std::uint64_t>(known_events(api_)) & type) != 0 ? start(type, parents) : kNull;
}

void EventScript::record(Event event, int state, std::uint64_t value) {
  std::vector<std::byte> arguments(api_ <= 3 ? 16 : 8);
  std::memcpy(arguments.data(), &value, sizeof value);
  add("recordEventState", fmt::format("{}, state {}", names_[event], state),
      {{.source = Source::kSlot, .number = event},
       {.number = static_cast<std::uint64_t>(state)},
       {.source = Source::kBytes, .bytes = std::move(arguments)}},
      event, kNull);
}

void EventScript::record_without_arguments(Event event, int state) {
  record(event, state);
  if (event != kNull) calls_.back().step.arguments.back().bytes.clear();
}

void EventScript::stop(Event event) {
  add("stopEvent", names_[event], {{.source = Source::kSlot, .number = event}}, event, kNull);
}

void EventScript::add(std::string function, std::string about, std::vector<CallScript::Argument> arguments,
                      Event unless_null, Event starts) {
  if (starts == kNull && unless_null == kNull) return;  // of an event that NCCL does not start
  CallScript::Step step{std::move(function), std::move(about), std::move(arguments)};
  if (unless_null != kNull) step.unless_null = unless_null;
  calls_.push_back({std::move(step), in_proxy_, starts});
}

// The calls of the application's thread in the API, which end before the calls of the operation begin.
std::pair<EventScript::Event, EventScript::Event> EventScript::start_api(bool collective) {
  enter_proxy(false);
  const int task =
      collective ? abi::kProfileColl | abi::kProfileCollApi | kCopyEngine : abi::kProfileP2p | abi::kProfileP2pApi;
  const Event group = start_if(kUnderApi, abi::kProfileGroupApi, {});
  record_without_arguments(group, abi::kStateGroupStartStop);
  const Event call =
      start_if(task | kUnderTasks, collective ? abi::kProfileCollApi : abi::kProfileP2pApi, {.parent = group});
  stop(call);
  record_without_arguments(group, abi::kStateGroupEndStart);
  return {group, call};
}

void EventScript::add_operation(abi::ProfilerEvent task) {
  const auto [group_api, call] = start_api(task == abi::kProfileColl);
  const Event group = start_if(kUnderGroups, abi::kProfileGroup, {});
  const Event operation = start_if(task | kUnderTasks, static_cast<std::uint64_t>(task),
                                   {.parent = api_ >= 5 ? call : group, .group = group});
  const Event launch = start_if(abi::kProfileKernelLaunch, abi::kProfileKernelLaunch, {.parent = group_api});
  stop(launch);
  stop(operation);
  stop(group);
  stop(group_api);
  enter_proxy();
  const Event kernel = start_if(abi::kProfileKernelCh, abi::kProfileKernelCh, {.parent = operation});
  const Event phase = start_if(abi::kProfileKernelPhase, abi::kProfileKernelPhase, {.parent = kernel});
  if (wants(kOperations)) add_proxy_operation({.parent = operation}, task == abi::kProfileColl);
  stop(phase);
  if (api_ >= 4) record(kernel, abi::kStateKernelStop, 2'000'000);
  stop(kernel);
}

void EventScript::add_proxy_operation(const EventParents& parents, bool sends) {
  const bool old = api_ <= 3;
  enter_proxy();
  const Event operation = start(abi::kProfileProxyOp, parents);
  record(operation, old ? (sends ? abi::kStateOpSendPosted : abi::kStateOpRecvPosted) : abi::kStateOpInProgress);
  std::vector<Event> steps;
  for (int i = 0; i < kSteps; ++i) steps.push_back(start_if(kTransfers, abi::kProfileProxyStep, {.parent = operation}));
  for (const Event step : steps) {
    record(step, sends ? abi::kStateSendGpuWait : abi::kStateRecvWait);
    if (!old && sends) record(step, abi::kStateSendPeerWait);
    const Event net = start_if(abi::kProfileNetPlugin, abi::kProfileNetPlugin, {.parent = step});
    record(step, sends ? abi::kStateSendWait : abi::kStateRecvFlushWait, old ? 0 : 4096);
    if (!old) record(net, abi::kStateNetUpdate, descriptors_.net_event());
    stop(net);
    if (!sends) record(step, abi::kStateRecvGpuWait, old ? 0 : 4096);
    stop(step);
  }
  if (old) record(operation, sends ? abi::kStateOpSendDone : abi::kStateOpRecvDone, 4096);
  stop(operation);
}

void EventScript::add_copy_engine_operation() {
  if (!wants(kCopyEngine)) return;
  const auto [group_api, call] = start_api(true);
  const Event operation = start_if(kCopyEngine, abi::kProfileCeColl, {.parent = call});
  for (const int type : {abi::kProfileCeSync, abi::kProfileCeBatch, abi::kProfileCeSync}) {
    const Event part = start_if(type, static_cast<std::uint64_t>(type), {.parent = operation});
    if (part != kNull) calls_.back().step.unless_null = operation;
    stop(part);
  }
  stop(operation);
  stop(group_api);
}

void EventScript::add_control() {
  enter_proxy();
  for (const auto& [first, second] : {std::pair{abi::kStateCtrlAppend, abi::kStateCtrlAppendEnd},
                                      {abi::kStateCtrlIdle, abi::kStateCtrlIdle},
                                      {abi::kStateCtrlSleep, abi::kStateCtrlWakeup}}) {
    const Event event = start_if(abi::kProfileProxyCtrl, abi::kProfileProxyCtrl, {});
    record(event, first);
    if (second != first) record(event, second, second == abi::kStateCtrlAppendEnd ? 1 : 0);
    stop(event);
  }
}

}  // namespace plugfest::conformance
