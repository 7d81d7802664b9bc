// Descriptions of faults, and the command-line form of scripts.
#include "harness/faults/script.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <stdexcept>

#include "fabric/system/process.h"
#include "fabric/system/text.h"
#include "fabric/topology/quantity.h"
#include "harness/faults/script_file.h"

namespace plugfest::faults {
namespace {

// Parses "loss=1%,delay=1ms,seed=7".
Script read_inline(const std::string& specification, const topology::Graph& graph, const std::string& source) {
  Script script;
  Entry entry;
  entry.source = source;
  std::vector<std::string> known = packet_fields();
  known.emplace_back("seed");
  for (std::string_view rest = specification; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const std::size_t equals = word.find('=');
    const std::string name(word.substr(0, equals));
    const std::string value(equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1));
    if (name != kOtherNameOfLoss && std::find(known.begin(), known.end(), name) == known.end()) {
      throw std::runtime_error(
          fmt::format("{} \"{}\": {}, or use a file that ends in .yaml", source, word, suggestion(name, known)));
    }
    try {
      if (name == "seed")
        script.seed = parse_seed(value);
      else
        set_packet_field(entry.fault.packets, name, value);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{} {} {}", source, name, error.what()));
    }
  }
  if (!entry.fault.packets.any()) {
    throw std::runtime_error(
        fmt::format("{} \"{}\": no fault: expected at least one, as in loss=1%", source, specification));
  }
  entry.fault.interfaces = host_interfaces(graph);
  entry.fault.both_ways = true;
  entry.fault.text = entry.fault.packets.text() + " on every link";
  script.entries.push_back(std::move(entry));
  return script;
}

std::string seconds_text(Duration duration) {
  return fmt::format("{:g} s", std::chrono::duration<double>(duration).count());
}

}  // namespace

std::string PacketFaults::text() const {
  std::string text;
  const auto add = [&](const char* name, double fraction) {
    if (fraction > 0) text += fmt::format("{}{} {:g}%", text.empty() ? "" : ", ", name, fraction * 100);
  };
  add("loss", loss);
  add("duplicate", duplicate);
  add("reorder", reorder);
  add("corrupt", corrupt);
  if (delay_us > 0) text += fmt::format("{}delay {}", text.empty() ? "" : ", ", topology::delay_text(delay_us));
  return text;
}

std::string Entry::when() const {
  if (at) return "at " + seconds_text(*at);
  if (!on) return "from the start";
  std::string text = on->rule;
  if (!on->call.empty()) text += fmt::format(": {} {}", on->call, on->nth);
  if (!on->rank.empty()) text += " of rank " + on->rank;
  if (after.count() > 0) text += fmt::format(", {} later", seconds_text(after));
  return text;
}

void Script::assign_seeds(std::uint64_t default_seed) {
  std::uint64_t next = seed.value_or(default_seed);
  for (Entry& entry : entries) entry.fault.packets.seed = next++;
}

Script read_script(const std::string& specification, const topology::Graph& graph, const std::string& source) {
  Script script =
      is_yaml_file(specification) ? read_script_file(specification, graph) : read_inline(specification, graph, source);
  script.specification = specification;
  return script;
}

bool matches(const Step& step, std::string_view rule) {
  return fnmatch(step.rule.c_str(), std::string(rule).c_str(), 0) == 0;
}

bool applies(const Entry& entry, std::string_view rule) { return !entry.on || matches(*entry.on, rule); }

void select_entries(Script& script, const std::vector<std::string>& rules, const std::vector<std::string>& known) {
  const auto is_one_of = [](const Entry& entry, const std::vector<std::string>& ids) {
    return std::any_of(ids.begin(), ids.end(), [&](const std::string& id) { return applies(entry, id); });
  };
  const auto start = [](const Entry& entry) {
    return fmt::format("faults {}: on rule \"{}\": ", entry.source, entry.on->rule);
  };
  for (const Entry& entry : script.entries) {
    if (is_one_of(entry, known)) continue;
    // Suggests only rules of the same group, since the list of all rules is long.
    std::vector<std::string> near;
    std::copy_if(known.begin(), known.end(), std::back_inserter(near),
                 [&](const std::string& rule) { return rule.substr(0, 2) == entry.on->rule.substr(0, 2); });
    throw std::runtime_error(start(entry) +
                             (near.empty() ? fmt::format("no such rule: run {} rules for the list", program_as_typed())
                                           : suggestion(entry.on->rule, std::move(near))));
  }
  const Entry first = script.entries.front();
  std::erase_if(script.entries, [&](const Entry& entry) { return !is_one_of(entry, rules); });
  if (script.entries.empty()) throw std::runtime_error(start(first) + "not selected for this run: see --rule");
}

namespace {

using topology::Graph;
using topology::LinkEnd;

[[noreturn]] void throw_unknown(std::string_view name, std::vector<std::string> known) {
  throw std::runtime_error(fmt::format("\"{}\": {}", name, suggestion(name, std::move(known))));
}

Interface interface_of(const Graph& graph, const LinkEnd& end) {
  return {graph.node_name(end), graph.interface(end).name, end.node == LinkEnd::Node::kHost};
}

std::string full_name(const Interface& interface) { return interface.node + "." + interface.name; }

}  // namespace

std::vector<Interface> find_link(const Graph& graph, std::string_view name) {
  std::vector<std::vector<Interface>> found;
  std::vector<std::string> known;
  std::vector<std::string> full_names;
  for (const topology::Link& link : graph.links) {
    const std::array<Interface, 2> ends = {interface_of(graph, link.ends[0]), interface_of(graph, link.ends[1])};
    for (const std::size_t first : {0u, 1u}) {
      const Interface& from = ends[first];
      const Interface& to = ends[1 - first];
      const std::string full = full_name(from) + "-" + full_name(to);
      if (name == from.node + "-" + to.node || name == full) {
        found.push_back({from, to});
        full_names.push_back(full);
      }
      if (first == 0) known.push_back(from.node + "-" + to.node);
    }
  }
  if (found.empty()) throw_unknown(name, known);
  if (found.size() > 1) {
    throw std::runtime_error(fmt::format("\"{}\": {} links have this name: name both interfaces, as in {}", name,
                                         found.size(), full_names[0]));
  }
  return found.front();
}

Interface find_interface(const Graph& graph, std::string_view name) {
  std::vector<std::string> known;
  for (const topology::Link& link : graph.links) {
    for (const LinkEnd& end : link.ends) {
      Interface interface = interface_of(graph, end);
      known.push_back(full_name(interface));
      if (known.back() == name) return interface;
    }
  }
  throw_unknown(name, known);
}

topology::Subnet subnet_of(const Graph& graph, const Interface& interface) {
  for (const topology::Link& link : graph.links) {
    for (const LinkEnd& end : link.ends)
      if (interface_of(graph, end) == interface) return link.subnet;
  }
  throw std::runtime_error(fmt::format("no interface {}", full_name(interface)));
}

bool is_host_address(const topology::Subnet& subnet, topology::Ipv4Address address) {
  const std::uint32_t host_mask = static_cast<std::uint32_t>((std::uint64_t{1} << (32 - subnet.prefix_length)) - 1);
  const std::uint32_t host_part = address.value & host_mask;
  return subnet.contains(address) && host_part != 0 && host_part != host_mask;
}

std::string owner_of(const Graph& graph, topology::Ipv4Address address) {
  for (const topology::Link& link : graph.links) {
    for (const LinkEnd& end : link.ends)
      if (graph.interface(end).address == address) return full_name(interface_of(graph, end));
  }
  return {};
}

std::optional<topology::Ipv4Address> free_address(const Graph& graph, const Interface& interface) {
  const topology::Subnet subnet = subnet_of(graph, interface);
  for (topology::Ipv4Address address = subnet.network; subnet.contains(address); ++address.value)
    if (is_host_address(subnet, address) && owner_of(graph, address).empty()) return address;
  return std::nullopt;
}

std::string find_host(const Graph& graph, const std::string& name) {
  std::vector<std::string> known;
  for (const topology::Host& host : graph.hosts) known.push_back(host.name);
  if (std::find(known.begin(), known.end(), name) == known.end()) throw_unknown(name, known);
  return name;
}

std::vector<Interface> host_interfaces(const Graph& graph) {
  std::vector<Interface> all;
  for (const topology::Host& host : graph.hosts)
    for (const topology::Interface& interface : host.interfaces) all.push_back({host.name, interface.name, true});
  return all;
}

}  // namespace plugfest::faults
