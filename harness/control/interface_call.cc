#include "harness/control/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "harness/abi/tuner.h"
#include "harness/control/rank_process.h"
#include "harness/plugin/layout.h"

namespace plugfest::control {
namespace {

using plugin::Parameter;
using plugin::Shape;

// The default value of an output before a call.
constexpr std::uint64_t kFill = kPoison & 0xff;

std::uint64_t poison_of(Shape shape) {
  switch (shape) {
    case Shape::kOutPointer:
      return kPoison;
    case Shape::kOutInt:
      return kPoison & 0xffffffff;
    case Shape::kOutBool:
    case Shape::kProperties:
      return kFill;
    default:
      return 0;
  }
}

wire::Argument argument_of(const Parameter& parameter, const CallArguments& given, const Ledger& ledger) {
  if (const auto found = given.find(parameter.name); found != given.end())
    return {found->second.number, found->second.bytes};
  if (parameter.shape != Shape::kNumber) return {poison_of(parameter.shape), {}};
  const OpenObject* const open = ledger.oldest(parameter.name);
  return {open == nullptr ? 0 : open->value, {}};
}

// "listen(ctx 0x1, dev 0)", "startEvent(ProxyStep, context 0x1)"
std::string text_of(const plugin::SlotLayout& slot, const std::vector<wire::Argument>& arguments,
                    std::string_view about) {
  std::string text(about);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (slot.parameters[i].shape != Shape::kNumber) continue;
    constexpr std::uint64_t kMaxNumber = 1 << 20;
    const std::uint64_t number = arguments[i].number;
    const std::string value = number > kMaxNumber ? pointer_text(number) : std::to_string(number);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", slot.parameters[i].name, value);
  }
  return fmt::format("{}({})", slot.name, text);
}

bool is_untouched(Shape shape, const wire::Argument& before, const CallOutcome::Output& after) {
  if (shape == Shape::kInOut) return after.bytes == before.bytes;
  if (after.bytes.empty()) return after.value == (shape == Shape::kOutInt ? before.number & 0xffffffff : before.number);
  return std::all_of(after.bytes.begin(), after.bytes.end(),
                     [&](std::byte byte) { return byte == static_cast<std::byte>(before.number); });
}

// Records in the ledger which objects the call has opened or closed.
void note(RankProcess& rank, const plugin::ApiLayout& layout, const plugin::SlotLayout& slot,
          const std::vector<wire::Argument>& arguments, const CallOutcome& outcome) {
  if (!arguments.empty()) rank.ledger.closed_by(slot.name, arguments.back().number);
  if (rank.ledger.objects.size() < rank.ledger.kept_objects) rank.mark_unfit();  // other rules need them
  const plugin::SlotLayout* const closing = layout.find(slot.closed_by);
  if (closing == nullptr || !outcome.ok()) return;
  OpenObject opened{.name = closing->parameters.back().name, .closed_by = closing->name};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Parameter& parameter = slot.parameters[i];
    if (parameter.shape == Shape::kNumber && !parameter.outlived)
      opened.arguments.emplace(parameter.name, arguments[i].number);
    if (parameter.shape == Shape::kOutPointer && opened.value == 0) opened.value = outcome.pointer(parameter.name);
  }
  if (opened.value != 0 && opened.value != kPoison) rank.ledger.objects.push_back(std::move(opened));
}

}  // namespace

CallArgument::CallArgument(const char* text) {
  const auto* const first = reinterpret_cast<const std::byte*>(text);
  bytes.assign(first, first + std::strlen(text) + 1);
}

CallArguments tuner_arguments(std::size_t ranks, std::size_t nodes) {
  std::vector<std::byte> domains(sizeof(abi::NvlDomainInfo)), constants(sizeof(abi::TunerConstants));
  const int per_node = static_cast<int>(ranks / nodes);
  const abi::NvlDomainInfo info = {static_cast<int>(nodes), per_node, per_node};
  std::memcpy(domains.data(), &info, sizeof info);
  const std::vector<double> numbers(constants.size() / sizeof(double), 1.0);
  std::memcpy(constants.data(), numbers.data(), constants.size());
  return {{"nRanks", ranks}, {"nNodes", nodes}, {"nvlDomainInfo", domains}, {"constants", constants}};
}

CallArguments init_arguments(plugin::InterfaceKind interface, std::uint64_t comm_id) {
  if (interface == plugin::InterfaceKind::kEnv)
    return {{"ncclMajor", 2}, {"ncclMinor", 30}, {"ncclPatch", 7}, {"suffix", ""}};
  CallArguments arguments = {{"commId", comm_id}};
  if (interface == plugin::InterfaceKind::kProfiler)
    arguments.insert({{"commName", "plugfest"}, {"nNodes", 2}, {"nranks", 2}});
  if (interface == plugin::InterfaceKind::kTuner) arguments.merge(tuner_arguments(2, 2));
  return arguments;
}

const CallOutcome::Output& CallOutcome::output(std::string_view parameter) const {
  static const Output nothing;
  const auto found = outputs.find(parameter);
  return found == outputs.end() ? nothing : found->second;
}

CallOutcome Rank::call(std::string_view function, const CallArguments& arguments) {
  CallOutcome outcome = try_call(function, arguments);
  require_success(outcome);
  return outcome;
}

Started<CallOutcome> Rank::start_call(std::string_view function, const CallArguments& given, std::string_view about) {
  const plugin::ApiLayout& layout = plugin::api_layout(library().interface, api());
  const plugin::SlotLayout* const slot = layout.find(function);
  if (slot == nullptr) throw std::logic_error(fmt::format("{} has no {}", layout.symbol, function));
  const plugin::Interface& interface = plugin::interface_of(layout.kind);
  for (const auto& [name, argument] : given) {
    bool known = false;
    for (int version = interface.oldest; version <= interface.newest; ++version) {
      const plugin::SlotLayout* const there = plugin::api_layout(layout.kind, version).find(function);
      known = known || (there != nullptr &&
                        std::any_of(there->parameters.begin(), there->parameters.end(),
                                    [&name = name](const Parameter& parameter) { return parameter.name == name; }));
    }
    if (!known) throw std::logic_error(fmt::format("{} of {} has no parameter {}", function, interface.name, name));
  }
  wire::Call call{std::string(function), {}};
  for (const Parameter& parameter : slot->parameters)
    call.arguments.push_back(argument_of(parameter, given, process_->ledger));
  const std::string thread = thread_.empty() ? std::string(slot->thread) : thread_;
  std::string text = text_of(*slot, call.arguments, about);
  return start<CallOutcome>(
      process_, thread, call, std::move(text),
      [&layout, slot, arguments = call.arguments](CallOutcome& outcome, const wire::CalledAnswer& answer,
                                                  RankProcess& rank) {
        std::string result;
        for (std::size_t i = 0; i < answer.outputs.size() && i < arguments.size(); ++i) {
          const Parameter& parameter = slot->parameters[i];
          if (!plugin::is_output(parameter.shape)) continue;
          CallOutcome::Output output{answer.outputs[i].number, answer.outputs[i].bytes};
          output.untouched = is_untouched(parameter.shape, arguments[i], output);
          if (parameter.shape == Shape::kOutPointer)
            result += fmt::format("{}{} {}", result.empty() ? "" : ", ", parameter.name, pointer_text(output.value));
          else if (parameter.shape == Shape::kOutInt)
            result +=
                fmt::format("{}{} {}", result.empty() ? "" : ", ", parameter.name, static_cast<int>(output.value));
          outcome.outputs.emplace(parameter.name, std::move(output));
        }
        if (slot->returns_text && answer.outputs.size() > arguments.size())
          outcome.outputs.emplace(kReturned, CallOutcome::Output{answer.outputs.back().number, {}, false});
        outcome.texts = answer.texts;
        note(rank, layout, *slot, arguments, outcome);
        return result.empty() ? std::string("Success") : result;
      });
}

std::string Rank::link_target(const std::string& path) { return process_->ask(wire::LinkTarget{path}).text; }

std::string Rank::text_at(std::uint64_t address) { return process_->ask(wire::TextAt{address}).text; }

}  // namespace plugfest::control
