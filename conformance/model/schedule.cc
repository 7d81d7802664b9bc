#include "conformance/model/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "conformance/model/model.h"
#include "fabric/system/text.h"
#include "fabric/system/yaml_file.h"

namespace plugfest::model {

namespace {

// "tag: 7, bytes: 1000, room: 4096"
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
  std::string operator()(const OneSided& step) const {
    std::string text = fmt::format("{}: {{from: {}, to: {}", step.get ? "get" : "put", schedule.ranks.at(step.from),
                                   schedule.ranks.at(step.to));
    if (step.bytes != 0) text += fmt::format(", bytes: {}", step.bytes);
    if (step.context != 0) text += fmt::format(", context: {}", step.context);
    if (step.signal) text += fmt::format(", signal: {}", *step.signal);
    if (step.add) text += fmt::format(", add: {}", *step.add);
    return text + "}";
  }
  std::string operator()(const Compare&) const { return "compare: {}"; }
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
    if (const auto* transfer = std::get_if<Transfer>(&step))
      count += std::uint64_t{transfer->repeat} * transfer->messages.size();
    if (std::holds_alternative<OneSided>(step)) ++count;
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
  if (!schedule.interface.empty()) text += fmt::format("interface: {}\n", schedule.interface);
  if (!schedule.faults.empty()) text += fmt::format("faults: \"{}\"\n", schedule.faults);
  text += "steps:\n";
  for (const Step& step : schedule.steps) text += fmt::format("  - {}\n", step_text(schedule, step));
  return text;
}

namespace {

// Parses a whole number from `least` to `most`. Errors: std::runtime_error for YamlFile::parsed().
template <typename Number>
Number number(const std::string& text, Number least, Number most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw std::runtime_error(fmt::format("\"{}\": expected a whole number from {} to {}", text, least, most));
  return value;
}

class File : YamlFile {
 public:
  explicit File(const std::string& path) : YamlFile("schedule", path) {}

  Schedule read() {
    const YAML::Node root = load();
    require_map(root, "schedule");
    require_known(root, "schedule", {"topology", "ranks", "seed", "interface", "faults", "steps"});
    schedule_.topology = scalar(required(root, "schedule", "topology"), "topology");
    schedule_.seed = field<std::uint64_t>(root, "schedule", "seed", 0, UINT64_MAX);
    if (const YAML::Node interface = root["interface"]) {
      schedule_.interface = scalar(interface, "interface");
      if (schedule_.interface != "gin" && schedule_.interface != "rma")
        fail(interface,
             fmt::format("interface \"{}\": expected gin or rma, or no such line for a net", schedule_.interface));
    }
    if (root["faults"]) schedule_.faults = scalar(root["faults"], "faults");
    const YAML::Node ranks = list(root, "schedule", "ranks");
    for (const YAML::Node& rank : ranks) schedule_.ranks.push_back(scalar(rank, "ranks"));
    if (schedule_.ranks.empty() || schedule_.ranks.size() > kMaxRanks)
      fail(ranks, fmt::format("ranks: expected 1 to {}", kMaxRanks));
    const YAML::Node steps = list(root, "schedule", "steps");
    for (const YAML::Node& step : steps) schedule_.steps.push_back(read_step(step));
    try {
      plan(schedule_);
    } catch (const InvalidStep& invalid) {
      const YAML::Node at = steps[invalid.step()];
      fail(at, fmt::format("{}: {}", scalar(at.begin()->first, "step"), invalid.what()));
    }
    return schedule_;
  }

 private:
  Step read_step(const YAML::Node& node) {
    require_map(node, "step");
    if (node.size() != 1) fail(node, "step: expected one operation, as in close: {comm: 0}");
    const std::string name = scalar(node.begin()->first, "step");
    const YAML::Node fields = node.begin()->second;
    const std::vector<std::string> known = {"connect", "message", "group", "register", "pause",
                                            "freeze",  "close",   "put",   "get",      "compare"};
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail(node, fmt::format("no operation \"{}\": {}", name, suggestion(name, known)));
    require_map(fields, name);
    if (name == "connect") return read_connect(fields);
    if (name == "message") return read_message(fields);
    if (name == "group") return read_group(fields);
    if (name == "pause") return read_pause(fields);
    if (name == "freeze") return read_freeze(fields);
    if (name == "put" || name == "get") return read_one_sided(fields, name.c_str());
    if (name == "compare") {
      require_known(fields, name, {});
      return Compare{};
    }
    require_known(fields, name, {"comm"});
    if (name == "register") return Register{comm(fields, name)};
    return Close{comm(fields, name)};
  }

  Connect read_connect(const YAML::Node& node) {
    require_known(node, "connect", {"comm", "from", "to", "window", "test"});
    Connect step{
        .comm = comm(node, "connect"), .from = rank(node, "connect", "from"), .to = rank(node, "connect", "to")};
    if (node["window"]) step.window = field<unsigned>(node, "connect", "window", 1, kMaxWindow);
    if (const YAML::Node test = node["test"]) {
      const std::string text = scalar(test, "connect test");
      if (text != "oldest" && text != "all") fail(test, fmt::format("test \"{}\": expected oldest or all", text));
      step.oldest_only = text == "oldest";
    }
    return step;
  }

  Transfer read_message(const YAML::Node& node) {
    require_known(node, "message", {"comm", "tag", "bytes", "room", "repeat"});
    return {.comm = comm(node, "message"),
            .messages = {message(node, "message")},
            .sends = in_order(1),
            .repeat = repeat(node, "message")};
  }

  Transfer read_group(const YAML::Node& node) {
    require_known(node, "group", {"comm", "messages", "sends", "repeat"});
    Transfer step{.comm = comm(node, "group"), .messages = {}, .sends = {}, .repeat = repeat(node, "group")};
    const YAML::Node messages = list(node, "group", "messages");
    for (const YAML::Node& entry : messages) {
      require_map(entry, "group message");
      require_known(entry, "group message", {"tag", "bytes", "room"});
      step.messages.push_back(message(entry, "group message"));
    }
    step.sends = in_order(step.messages.size());
    if (node["sends"]) {
      step.sends.clear();
      const YAML::Node sends = list(node, "group", "sends");
      for (const YAML::Node& send : sends)
        step.sends.push_back(parsed(send, "sends", [](const std::string& text) { return number(text, 0u, 63u); }));
    }
    return step;
  }

  Pause read_pause(const YAML::Node& node) {
    require_known(node, "pause", {"rank", "us"});
    return {rank(node, "pause", "rank"), field<std::uint32_t>(node, "pause", "us", 0, kMaxPauseUs)};
  }

  Freeze read_freeze(const YAML::Node& node) {
    require_known(node, "freeze", {"rank", "at-us", "us"});
    return {rank(node, "freeze", "rank"), field<std::uint32_t>(node, "freeze", "at-us", 0, kMaxPauseUs),
            field<std::uint32_t>(node, "freeze", "us", 0, kMaxPauseUs)};
  }

  OneSided read_one_sided(const YAML::Node& node, const char* name) {
    require_known(node, name, {"from", "to", "bytes", "context", "signal", "add"});
    OneSided step{.get = name == std::string("get"), .from = rank(node, name, "from"), .to = rank(node, name, "to")};
    if (node["bytes"]) step.bytes = field<std::uint32_t>(node, name, "bytes", 0, kMaxBytes);
    if (node["context"]) step.context = field<unsigned>(node, name, "context", 0, kContexts - 1);
    if (node["signal"]) step.signal = field<unsigned>(node, name, "signal", 0, kSignals - 1);
    if (node["add"]) step.add = field<std::uint64_t>(node, name, "add", 0, UINT64_MAX);
    return step;
  }

  Message message(const YAML::Node& node, const char* what) {
    Message message{.tag = field<int>(node, what, "tag", 0, INT32_MAX),
                    .bytes = field<std::uint32_t>(node, what, "bytes", 0, kMaxBytes)};
    message.room = node["room"] ? field<std::uint32_t>(node, what, "room", 0, kMaxBytes) : message.bytes;
    return message;
  }
  std::uint32_t repeat(const YAML::Node& node, const char* what) {
    return node["repeat"] ? field<std::uint32_t>(node, what, "repeat", 1, UINT32_MAX) : 1;
  }
  unsigned comm(const YAML::Node& node, const std::string& what) {
    return field<unsigned>(node, what.c_str(), "comm", 0, UINT32_MAX);
  }
  unsigned rank(const YAML::Node& node, const char* what, const char* name) {
    const YAML::Node at = required(node, what, name);
    const std::string text = scalar(at, fmt::format("{} {}", what, name));
    const auto found = std::find(schedule_.ranks.begin(), schedule_.ranks.end(), text);
    if (found == schedule_.ranks.end())
      fail(at, fmt::format("{} {} \"{}\": {}", what, name, text, suggestion(text, schedule_.ranks)));
    return static_cast<unsigned>(found - schedule_.ranks.begin());
  }
  template <typename Number>
  Number field(const YAML::Node& node, const char* what, const char* name, Number least, Number most) {
    return parsed(required(node, what, name), fmt::format("{} {}", what, name),
                  [&](const std::string& text) { return number<Number>(text, least, most); });
  }

  Schedule schedule_;
};

}  // namespace

Schedule read_schedule(const std::string& path) { return File(path).read(); }

}  // namespace plugfest::model
