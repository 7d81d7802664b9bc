#include "conformance/interfaces/profiler_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "harness/plugin/layout.h"

namespace plugfest::conformance {

CallOutcome ProfilerRule::try_init(Rank& rank, int number, bool named) {
  CallArguments arguments = {{"*context", 0}, {"commId", 0x1000 + number}, {"nNodes", 2},
                             {"nranks", 2},   {"rank", number % 2},        {"*eActivationMask", mask_}};
  if (named) arguments.emplace("commName", "plugfest");
  CallOutcome outcome = rank.try_call("init", arguments);
  if (outcome.ok()) mask_ = outcome.integer("*eActivationMask");
  return outcome;
}

void ProfilerRule::require_first_init(const CallOutcome& outcome) {
  if (outcome.ok()) return;
  not_applicable(
      fmt::format("{} returned {}: NCCL continues without the profiler", outcome.call, result_name(outcome.code)));
}

ProfiledCommunicator ProfilerRule::open(Rank& rank, int number, int events) {
  const CallOutcome outcome = try_init(rank, number);
  require_first_init(outcome);
  const int mask = outcome.integer("*eActivationMask") & known_events(api());
  if (events != kNoEvent && (mask & events) == 0)
    not_applicable(fmt::format("init wrote the activation mask 0x{:x}, for which NCCL starts no {}event", mask,
                               events == kAnyEvent ? "" : "such "));
  return {outcome.pointer("*context"), mask};
}

void ProfilerRule::close(Rank& rank, const ProfiledCommunicator& communicator) {
  if (communicator.context == 0) return;
  const CallOutcome outcome = rank.try_call("finalize", {{"context", communicator.context}});
  should(outcome.ok(), [&] { return fmt::format("{} returned {}", outcome.call, result_name(outcome.code)); });
}

EventScript ProfilerRule::operations(Rank& rank, const ProfiledCommunicator& communicator, bool named) {
  EventScript script(rank, communicator);
  if (!named) script.leave_out_names();
  script.add_operation(abi::kProfileColl);
  script.add_control();
  script.add_operation(abi::kProfileP2p);
  script.add_copy_engine_operation();
  return script;
}

std::vector<std::string> ProfilerRule::play(Rank& rank, EventScript& script) {
  std::vector<std::string> unwritten;
  for (const EventScript::Call& call : script.calls()) {
    if (play(rank, script, call)) continue;
    if (std::find(unwritten.begin(), unwritten.end(), call.step.about) == unwritten.end())
      unwritten.push_back(call.step.about);
  }
  return unwritten;
}

bool ProfilerRule::play(Rank& rank, EventScript& script, const EventScript::Call& call) {
  using Source = wire::CallScript::Source;
  std::vector<std::uint64_t>& slots = script.slots();
  const wire::CallScript::Step& step = call.step;
  if (step.unless_null && slots[*step.unless_null] == 0) return true;
  const auto parameters = plugin::api_layout(context().interface, api()).find(step.function)->parameters;
  CallArguments arguments;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const wire::CallScript::Argument& argument = step.arguments[i];
    if (argument.source == Source::kNumber) arguments.emplace(parameters[i].name, argument.number);
    if (argument.source == Source::kSlot) arguments.emplace(parameters[i].name, slots[argument.number]);
    if (argument.source != Source::kBytes) continue;  // an output holds poison
    std::vector<std::byte> bytes = argument.bytes;
    for (const wire::CallScript::Pointer& pointer : argument.pointers)
      std::memcpy(&bytes[pointer.offset], &slots[pointer.slot], sizeof slots[pointer.slot]);
    arguments.emplace(parameters[i].name, std::move(bytes));
  }
  const CallOutcome outcome = rank.on(call.in_proxy ? "prog" : "main").try_call(step.function, arguments, step.about);
  if (!outcome.damage.empty()) require_success(outcome);
  if (remarks().warnings.empty())
    should(outcome.ok(), [&] { return fmt::format("{} returned {}", outcome.call, result_name(outcome.code)); });
  if (call.starts == EventScript::kNull) return true;
  const bool written = !outcome.untouched("*eHandle");
  slots[call.starts] = written ? outcome.pointer("*eHandle") : 0;
  return written;
}

}  // namespace plugfest::conformance
