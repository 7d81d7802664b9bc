#include "harness/faults/script_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>
#include <stdexcept>
#include <utility>

#include "fabric/system/text.h"
#include "fabric/system/yaml_file.h"
#include "fabric/topology/quantity.h"

namespace plugfest::faults {
namespace {

constexpr std::pair<std::string_view, double PacketFaults::*> kFractions[] = {{"loss", &PacketFaults::loss},
                                                                              {"duplicate", &PacketFaults::duplicate},
                                                                              {"reorder", &PacketFaults::reorder},
                                                                              {"corrupt", &PacketFaults::corrupt}};
constexpr std::string_view kDelay = "delay";

}  // namespace

std::vector<std::string> packet_fields() {
  std::vector<std::string> names;
  for (const auto& [name, member] : kFractions) names.emplace_back(name);
  names.emplace_back(kDelay);
  return names;
}

bool set_packet_field(PacketFaults& packets, std::string_view name, std::string_view value) {
  if (name == kOtherNameOfLoss) name = "loss";
  for (const auto& [known, member] : kFractions) {
    if (name != known) continue;
    packets.*member = topology::parse_fraction(value);
    return true;
  }
  if (name != kDelay) return false;
  packets.delay_us = topology::parse_delay(value);
  return true;
}

std::uint64_t parse_seed(std::string_view text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::runtime_error(fmt::format("\"{}\": expected a whole number", text));
  return seed;
}

namespace {

// The names of the harness's calls. send and receive are loops of a rank over many messages, whose single calls the
// harness does not see.
const std::vector<std::string> kCalls = {
    "init",      "devices",     "getProperties", "makeVDevice", "listen",   "connect", "accept",
    "regMr",     "deregMr",     "isend",         "irecv",       "iflush",   "test",    "closeSend",
    "closeRecv", "closeListen", "irecvConsumed", "setNetAttr",  "finalize", "send",    "receive"};

class File : YamlFile {
 public:
  File(const std::filesystem::path& path, const topology::Graph& graph) : YamlFile("faults", path), graph_(graph) {}

  Script read() {
    const YAML::Node root = load();
    require_map(root, "faults");
    require_known(root, "faults", {"seed", "faults"});
    Script script;
    if (const YAML::Node seed = root["seed"]) script.seed = parsed(seed, "seed", parse_seed);
    const YAML::Node entries = list(root, "faults", "faults");
    for (const YAML::Node& node : entries) script.entries.push_back(read_entry(node));
    if (script.entries.empty()) fail(entries, "faults: expected at least one");
    return script;
  }

 private:
  Entry read_entry(const YAML::Node& node) {
    require_map(node, "fault");
    for (const auto& field : node) {
      const std::string name = scalar(field.first, "fault");
      const std::vector<std::string> known = fields();
      if (name == kOtherNameOfLoss || std::find(known.begin(), known.end(), name) != known.end()) continue;
      fail(field.first, fmt::format("fault: no field \"{}\": {}", name, suggestion(name, known)));
    }
    Entry entry;
    entry.source = location(node);
    entry.fault = read_fault(node);
    read_time(node, entry);
    if (entry.fault.kind == Kind::kKill && (entry.duration || entry.until))
      fail(node, "fault: killed ranks do not restart: remove for and until");
    return entry;
  }

  static std::vector<std::string> fields() {
    std::vector<std::string> all = {"at",        "on",   "after", "for", "until",  "link",
                                    "interface", "host", "do",    "mtu", "address"};
    const std::vector<std::string> packets = packet_fields();
    all.insert(all.end(), packets.begin(), packets.end());
    return all;
  }

  Fault read_fault(const YAML::Node& node) {
    Fault fault;
    std::vector<std::string> kinds;
    std::vector<std::string> names = packet_fields();
    names.emplace_back(kOtherNameOfLoss);
    if (node["loss"] && node[kOtherNameOfLoss])
      fail(node[kOtherNameOfLoss], "drop is another name of loss: leave out one of them");
    for (const std::string& name : names) {
      if (const YAML::Node field = node[name]) {
        parsed(field, name, [&](std::string_view text) { return set_packet_field(fault.packets, name, text); });
        if (kinds.empty()) kinds.push_back(name);
      }
    }
    for (const char* name : {"do", "mtu", "address"})
      if (node[name]) kinds.emplace_back(name);
    if (kinds.size() != 1) {
      fail(node, kinds.empty()
                     ? fmt::format("fault: expected one of do, mtu, address, {}", fmt::join(packet_fields(), ", "))
                     : fmt::format("fault: {} and {} are two faults: use two entries", kinds[0], kinds[1]));
    }
    if (const YAML::Node field = node["do"]) return read_action(node, field);
    if (const YAML::Node field = node["mtu"]) {
      fault.kind = Kind::kMtu;
      fault.mtu_bytes = parsed(field, "mtu", topology::parse_mtu);
      fault.text = fmt::format("{} mtu {}", read_link(node, fault), fault.mtu_bytes);
      for (const Interface& interface : fault.interfaces) {
        const int present = graph_.interface(*graph_.find_link_end(interface.node, interface.name)).mtu_bytes;
        if (fault.mtu_bytes >= present) {
          fail(field, fmt::format("mtu \"{}\": expected less than the {} bytes of {}", fault.mtu_bytes, present,
                                  name_of(interface)));
        }
      }
    } else if (const YAML::Node address = node["address"]) {
      fault.kind = Kind::kAddress;
      fault.address = parsed(address, "address", topology::parse_address);
      allow_targets(node, "address", {"interface"});
      fault.interfaces = {read_interface(required(node, "address", "interface"))};
      require_free(address, fault);
      fault.text = fmt::format("{} address {}", name_of(fault.interfaces[0]), fault.address.text());
    } else {
      if (!fault.packets.any()) fail(node, fmt::format("{}: expected a value above 0", kinds[0]));
      fault.text = fault.packets.text() + " on " + read_packets_target(node, fault);
    }
    return fault;
  }

  Fault read_action(const YAML::Node& node, const YAML::Node& field) {
    Fault fault;
    const std::string action = scalar(field, "do");
    if (action == "down") {
      fault.kind = Kind::kDown;
      fault.text = read_link(node, fault) + " down";
    } else if (action == "freeze" || action == "kill") {
      fault.kind = action == "kill" ? Kind::kKill : Kind::kFreeze;
      allow_targets(node, action, {"host"});
      fault.host = parsed(required(node, action, "host"), "host",
                          [&](const std::string& text) { return find_host(graph_, text); });
      fault.text = fmt::format("host {} {}", fault.host, action == "kill" ? "killed" : "frozen");
    } else if (action == "up" || action == "thaw") {
      fail(field, fmt::format("do \"{}\": faults end by themselves: use {} with for or until", action,
                              action == "up" ? "do: down" : "do: freeze"));
    } else {
      fail(field, fmt::format("do \"{}\": {}", action, suggestion(action, {"down", "freeze", "kill"})));
    }
    return fault;
  }

  void allow_targets(const YAML::Node& node, const std::string& what, const std::set<std::string>& allowed) {
    for (const char* name : {"link", "interface", "host"})
      if (node[name] && allowed.count(name) == 0)
        fail(node[name], fmt::format("{}: expected {}, not {}", what, fmt::join(allowed, " or "), name));
    if (node["link"] && node["interface"])
      fail(node["interface"], fmt::format("{}: expected either link or interface", what));
  }

  Interface read_interface(const YAML::Node& node) {
    return parsed(node, "interface", [&](std::string_view text) { return find_interface(graph_, text); });
  }

  static std::string name_of(const Interface& interface) { return interface.node + "." + interface.name; }

  // Reads a link or one interface. Returns its description.
  std::string read_link(const YAML::Node& node, Fault& fault) {
    const std::string what = fault.kind == Kind::kDown ? "down" : "mtu";
    allow_targets(node, what, {"link", "interface"});
    if (const YAML::Node interface = node["interface"]) {
      fault.interfaces = {read_interface(interface)};
      return name_of(fault.interfaces[0]);
    }
    const YAML::Node link = required(node, what, "link");
    fault.interfaces = parsed(link, "link", [&](std::string_view text) { return find_link(graph_, text); });
    return "link " + link.Scalar();
  }

  // Reads the target of packet faults: a link or an interface; all links without a target. Returns its text.
  std::string read_packets_target(const YAML::Node& node, Fault& fault) {
    if (node["host"]) fail(node["host"], "host: packet faults have a link, an interface, or no target for every link");
    if (!node["link"] && !node["interface"]) {
      fault.interfaces = host_interfaces(graph_);
      fault.both_ways = true;
      return "every link";
    }
    const std::string name = read_link(node, fault);
    fault.both_ways = static_cast<bool>(node["link"]);
    std::erase_if(fault.interfaces, [](const Interface& interface) { return !interface.of_host; });
    if (fault.interfaces.empty()) fail(node, fmt::format("fault: {} has no NIC, and NICs inject these faults", name));
    return name;
  }

  // Checks that a new address belongs to the link's subnet and is unused.
  void require_free(const YAML::Node& field, const Fault& fault) {
    const auto fail_with = [&](const std::string& text) {
      fail(field, fmt::format("address \"{}\": {}", fault.address.text(), text));
    };
    if (!fault.interfaces[0].of_host) fail_with("only addresses of hosts can change");
    const topology::Subnet subnet = subnet_of(graph_, fault.interfaces[0]);
    if (!is_host_address(subnet, fault.address)) fail_with("expected an address of " + subnet.text());
    const std::string owner = owner_of(graph_, fault.address);
    if (!owner.empty()) fail_with("in use by " + owner);
  }

  void read_time(const YAML::Node& node, Entry& entry) {
    const auto duration = [&](const YAML::Node& field, const char* what) {
      return Duration(parsed(field, what, topology::parse_duration));
    };
    if (node["at"] && node["on"]) fail(node["on"], "fault: expected either at or on");
    if (const YAML::Node at = node["at"]) entry.at = duration(at, "at");
    if (const YAML::Node on = node["on"]) entry.on = read_step(on, "on", {"rule", "call", "nth", "rank"});
    if (const YAML::Node after = node["after"]) {
      if (!entry.on) fail(after, "after: needs on; use at for a time since the beginning of the run");
      entry.after = duration(after, "after");
    }
    if (node["for"] && node["until"]) fail(node["until"], "fault: expected either for or until");
    if (const YAML::Node length = node["for"]) entry.duration = duration(length, "for");
    if (const YAML::Node until = node["until"]) {
      if (!entry.on) fail(until, "until: needs on, which names the rule");
      entry.until = read_step(until, "until", {"call", "nth", "rank"});
      entry.until->rule = entry.on->rule;
    }
  }

  Step read_step(const YAML::Node& node, const std::string& what, const std::vector<std::string>& known) {
    require_map(node, what);
    require_known(node, what, known);
    Step step;
    if (what == "on") {
      step.rule = scalar(required(node, what, "rule"), what + " rule");
      std::transform(step.rule.begin(), step.rule.end(), step.rule.begin(),
                     [](unsigned char c) { return c == '_' ? '-' : static_cast<char>(std::toupper(c)); });
    } else {
      required(node, what, "call");
    }
    if (const YAML::Node call = node["call"]) {
      step.call = scalar(call, what + " call");
      if (std::find(kCalls.begin(), kCalls.end(), step.call) == kCalls.end())
        fail(call, fmt::format("{} call \"{}\": {}", what, step.call, suggestion(step.call, kCalls)));
    }
    for (const char* name : {"nth", "rank"})
      if (node[name] && step.call.empty()) fail(node[name], fmt::format("{} {}: needs call", what, name));
    if (const YAML::Node nth = node["nth"]) {
      step.nth = static_cast<unsigned>(
          parsed(nth, what + " nth", [](std::string_view text) { return topology::parse_count(text, 1, 1000000); }));
    }
    if (const YAML::Node rank = node["rank"]) {
      step.rank = parsed(rank, what + " rank", [&](const std::string& text) {
        if (text.find('.') == std::string::npos) return find_host(graph_, text);
        find_interface(graph_, text);
        return text;
      });
    }
    return step;
  }

  const topology::Graph& graph_;
};

}  // namespace

Script read_script_file(const std::filesystem::path& path, const topology::Graph& graph) {
  return File(path, graph).read();
}

}  // namespace plugfest::faults
