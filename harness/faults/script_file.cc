// Reads a YAML file of faults, field by field.
#include "harness/faults/script_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "fabric/input/suggest.h"
#include "fabric/input/yaml_file.h"
#include "fabric/topology/quantity.h"
#include "harness/faults/fault_target.h"
#include "harness/faults/packet_fields.h"

namespace plugfest::faults {
namespace {

/// The calls that the harness makes, as records and failures name them. send and receive: a rank's own loop over many
/// messages, in which the harness sees no single call.
const std::vector<std::string> kCalls = {
    "init",      "devices",     "getProperties", "makeVDevice", "listen",   "connect", "accept",
    "regMr",     "deregMr",     "isend",         "irecv",       "iflush",   "test",    "closeSend",
    "closeRecv", "closeListen", "irecvConsumed", "setNetAttr",  "finalize", "send",    "receive"};

class File : input::YamlFile {
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
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      fail(field.first, fmt::format("fault: no field \"{}\": {}", name, input::suggestion(name, known)));
    }
    Entry entry;
    entry.source = location(node);
    entry.fault = read_fault(node);
    read_time(node, entry);
    if (entry.fault.kind == Kind::kKill && (entry.duration || entry.until)) {
      fail(node, "fault: what is killed does not come back: for and until have no meaning");
    }
    return entry;
  }

  static std::vector<std::string> fields() {
    std::vector<std::string> all = {"at",        "on",   "after", "for", "until",  "link",
                                    "interface", "host", "do",    "mtu", "address"};
    const std::vector<std::string> packets = packet_fields();
    all.insert(all.end(), packets.begin(), packets.end());
    return all;
  }

  // --- What and where.

  Fault read_fault(const YAML::Node& node) {
    Fault fault;
    std::vector<std::string> said;
    for (const std::string& name : packet_fields()) {
      if (const YAML::Node field = node[name]) {
        parsed(field, name, [&](std::string_view text) { return set_packet_field(fault.packets, name, text); });
        if (said.empty()) said.push_back(name);
      }
    }
    for (const char* name : {"do", "mtu", "address"}) {
      if (node[name]) said.emplace_back(name);
    }
    if (said.size() != 1) {
      fail(node, said.empty() ? fmt::format("fault: what goes wrong? Expected one of do, mtu, address, {}",
                                            fmt::join(packet_fields(), ", "))
                              : fmt::format("fault: {} and {} are two faults: write two entries", said[0], said[1]));
    }
    if (const YAML::Node field = node["do"]) return read_deed(node, field);
    if (const YAML::Node field = node["mtu"]) {
      fault.kind = Kind::kMtu;
      fault.mtu_bytes = parsed(field, "mtu", topology::parse_mtu);
      fault.text = fmt::format("{} mtu {}", read_link(node, fault), fault.mtu_bytes);
    } else if (const YAML::Node address = node["address"]) {
      fault.kind = Kind::kAddress;
      fault.address = parsed(address, "address", topology::parse_address);
      allow_places(node, "address", {"interface"});
      fault.interfaces = {read_interface(required(node, "address", "interface"))};
      require_free(address, fault);
      fault.text = fmt::format("{} address {}", name_of(fault.interfaces[0]), fault.address.text());
    } else {
      if (!fault.packets.any()) fail(node, fmt::format("{}: nothing goes wrong at 0", said[0]));
      fault.text = fault.packets.text() + " on " + read_packets_place(node, fault);
    }
    return fault;
  }

  Fault read_deed(const YAML::Node& node, const YAML::Node& field) {
    Fault fault;
    const std::string deed = scalar(field, "do");
    if (deed == "down") {
      fault.kind = Kind::kDown;
      fault.text = read_link(node, fault) + " down";
    } else if (deed == "freeze" || deed == "kill") {
      fault.kind = deed == "kill" ? Kind::kKill : Kind::kFreeze;
      allow_places(node, deed, {"host"});
      fault.host = parsed(required(node, deed, "host"), "host",
                          [&](const std::string& text) { return find_host(graph_, text); });
      fault.text = fmt::format("host {} {}", fault.host, deed == "kill" ? "killed" : "frozen");
    } else if (deed == "up" || deed == "thaw") {
      fail(field, fmt::format("do \"{}\": a fault ends by itself: give {} a for, or an until", deed,
                              deed == "up" ? "do: down" : "do: freeze"));
    } else {
      fail(field, fmt::format("do \"{}\": {}", deed, input::suggestion(deed, {"down", "freeze", "kill"})));
    }
    return fault;
  }

  void allow_places(const YAML::Node& node, const std::string& what, const std::set<std::string>& allowed) {
    for (const char* name : {"link", "interface", "host"}) {
      if (node[name] && allowed.count(name) == 0) {
        fail(node[name], fmt::format("{}: takes {}, not {}", what, fmt::join(allowed, " or "), name));
      }
    }
    if (node["link"] && node["interface"]) fail(node["interface"], fmt::format("{}: either link or interface", what));
  }

  Interface read_interface(const YAML::Node& node) {
    return parsed(node, "interface", [&](std::string_view text) { return find_interface(graph_, text); });
  }

  static std::string name_of(const Interface& interface) { return interface.node + "." + interface.name; }

  /// A link, or one interface of it; its name in words.
  std::string read_link(const YAML::Node& node, Fault& fault) {
    const std::string what = fault.kind == Kind::kDown ? "down" : "mtu";
    allow_places(node, what, {"link", "interface"});
    if (const YAML::Node interface = node["interface"]) {
      fault.interfaces = {read_interface(interface)};
      return name_of(fault.interfaces[0]);
    }
    const YAML::Node link = required(node, what, "link");
    fault.interfaces = parsed(link, "link", [&](std::string_view text) { return find_link(graph_, text); });
    return "link " + link.Scalar();
  }

  /// As above, or every link.
  std::string read_packets_place(const YAML::Node& node, Fault& fault) {
    if (node["host"]) fail(node["host"], "host: packets have a link or interface, or neither for every link");
    if (!node["link"] && !node["interface"]) {
      fault.interfaces = host_interfaces(graph_);
      fault.both_ways = true;
      return "every link";
    }
    const std::string name = read_link(node, fault);
    fault.both_ways = static_cast<bool>(node["link"]);
    std::erase_if(fault.interfaces, [](const Interface& interface) { return !interface.of_host; });
    if (fault.interfaces.empty()) fail(node, fmt::format("fault: {} has no NIC, and NICs make these faults", name));
    return name;
  }

  /// A new address must lie in the link's network and be nobody else's.
  void require_free(const YAML::Node& field, const Fault& fault) {
    const auto fail_with = [&](const std::string& text) {
      fail(field, fmt::format("address \"{}\": {}", fault.address.text(), text));
    };
    if (!fault.interfaces[0].of_host) fail_with("only a host's can change");
    const topology::Subnet subnet = subnet_of(graph_, fault.interfaces[0]);
    if (!is_host_address(subnet, fault.address)) fail_with("expected one of " + subnet.text());
    const std::string owner = owner_of(graph_, fault.address);
    if (!owner.empty()) fail_with(owner + " has it");
  }

  // --- When.

  void read_time(const YAML::Node& node, Entry& entry) {
    const auto duration = [&](const YAML::Node& field, const char* what) {
      return Duration(parsed(field, what, topology::parse_duration));
    };
    if (node["at"] && node["on"]) fail(node["on"], "fault: either at or on");
    if (const YAML::Node at = node["at"]) entry.at = duration(at, "at");
    if (const YAML::Node on = node["on"]) entry.on = read_step(on, "on", {"rule", "call", "nth", "rank"});
    if (const YAML::Node after = node["after"]) {
      if (!entry.on) fail(after, "after: only with on; a time since the start is at");
      entry.after = duration(after, "after");
    }
    if (node["for"] && node["until"]) fail(node["until"], "fault: either for or until");
    if (const YAML::Node length = node["for"]) entry.duration = duration(length, "for");
    if (const YAML::Node until = node["until"]) {
      if (!entry.on) fail(until, "until: only with on, whose rule makes the calls");
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
      if (std::find(kCalls.begin(), kCalls.end(), step.call) == kCalls.end()) {
        fail(call, fmt::format("{} call \"{}\": {}", what, step.call, input::suggestion(step.call, kCalls)));
      }
    }
    for (const char* name : {"nth", "rank"}) {
      if (node[name] && step.call.empty()) fail(node[name], fmt::format("{} {}: of which call?", what, name));
    }
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
