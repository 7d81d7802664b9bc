#include "harness/faults/fault_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "fabric/input/suggest.h"

namespace plugfest::faults {
namespace {

using topology::Graph;
using topology::LinkEnd;

[[noreturn]] void throw_unknown(std::string_view name, std::vector<std::string> known) {
  throw std::runtime_error(fmt::format("\"{}\": {}", name, input::suggestion(name, std::move(known))));
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
    for (const LinkEnd& end : link.ends) {
      if (interface_of(graph, end) == interface) return link.subnet;
    }
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
    for (const LinkEnd& end : link.ends) {
      if (graph.interface(end).address == address) return full_name(interface_of(graph, end));
    }
  }
  return {};
}

std::optional<topology::Ipv4Address> free_address(const Graph& graph, const Interface& interface) {
  const topology::Subnet subnet = subnet_of(graph, interface);
  for (topology::Ipv4Address address = subnet.network; subnet.contains(address); ++address.value) {
    if (is_host_address(subnet, address) && owner_of(graph, address).empty()) return address;
  }
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
  for (const topology::Host& host : graph.hosts) {
    for (const topology::Interface& interface : host.interfaces) all.push_back({host.name, interface.name, true});
  }
  return all;
}

}  // namespace plugfest::faults
