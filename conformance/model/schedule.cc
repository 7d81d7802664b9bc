#include "conformance/model/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace plugfest::model {
namespace {

/// "tag: 7, bytes: 1000, room: 4096"
std::string fields(const Message& message) {
  std::string text = fmt::format("tag: {}, bytes: {}", message.tag, message.bytes);
  if (message.room != message.bytes) text += fmt::format(", room: {}", message.room);
  return text;
}

struct StepText {
  const Schedule& schedule;

  std::string operator()(const Connect& step) const {
    std::string text = fmt::format("connect: {{comm: {}, from: {}, to: {}", step.comm, schedule.ranks.at(step.from),
                                   schedule.ranks.at(step.to));
    if (step.window != Connect{}.window) text += fmt::format(", window: {}", step.window);
    if (!step.oldest_only) text += ", test: all";
    return text + "}";
  }
  std::string operator()(const Transfer& step) const {
    const bool single = step.messages.size() == 1;
    std::string text = fmt::format("{}: {{comm: {}, ", single ? "message" : "group", step.comm);
    if (single) {
      text += fields(step.messages.front());
    } else {
      std::vector<std::string> messages;
      for (const Message& message : step.messages) messages.push_back("{" + fields(message) + "}");
      text += fmt::format("messages: [{}]", fmt::join(messages, ", "));
      if (step.sends != in_order(step.messages.size()))
        text += fmt::format(", sends: [{}]", fmt::join(step.sends, ", "));
    }
    if (step.repeat != 1) text += fmt::format(", repeat: {}", step.repeat);
    return text + "}";
  }
  std::string operator()(const Pause& step) const {
    return fmt::format("pause: {{rank: {}, us: {}}}", schedule.ranks.at(step.rank), step.us);
  }
  std::string operator()(const Register& step) const { return fmt::format("register: {{comm: {}}}", step.comm); }
  std::string operator()(const Freeze& step) const {
    return fmt::format("freeze: {{rank: {}, at-us: {}, us: {}}}", schedule.ranks.at(step.rank), step.at_us, step.us);
  }
  std::string operator()(const Close& step) const { return fmt::format("close: {{comm: {}}}", step.comm); }
};

}  // namespace

std::vector<unsigned> in_order(std::size_t count) {
  std::vector<unsigned> order(count);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

std::uint64_t count_messages(const Schedule& schedule) {
  std::uint64_t count = 0;
  for (const Step& step : schedule.steps) {
    if (const auto* transfer = std::get_if<Transfer>(&step)) {
      count += std::uint64_t{transfer->repeat} * transfer->messages.size();
    }
  }
  return count;
}

std::string step_text(const Schedule& schedule, const Step& step) { return std::visit(StepText{schedule}, step); }

std::string file_text(const Schedule& schedule, const std::vector<std::string>& comments) {
  std::string text;
  for (std::string comment : comments) {
    std::replace_if(
        comment.begin(), comment.end(), [](unsigned char c) { return c < ' '; }, ' ');
    text += fmt::format("# {}\n", comment);
  }
  text += fmt::format("topology: {}\nranks: [{}]\nseed: {}\n", schedule.topology, fmt::join(schedule.ranks, ", "),
                      schedule.seed);
  if (!schedule.faults.empty()) text += fmt::format("faults: \"{}\"\n", schedule.faults);
  text += "steps:\n";
  for (const Step& step : schedule.steps) text += fmt::format("  - {}\n", step_text(schedule, step));
  return text;
}

}  // namespace plugfest::model
