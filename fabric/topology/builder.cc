#include "fabric/topology/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace plugfest::topology {
namespace {

std::vector<Interface>& interfaces_of(Graph& graph, Node node) {
  return node.kind == LinkEnd::Node::kHost ? graph.hosts[node.index].interfaces : graph.switches[node.index].interfaces;
}

bool is_bridge(const Graph& graph, Node node) {
  return node.kind == LinkEnd::Node::kSwitch && graph.switches[node.index].kind == SwitchKind::kBridge;
}

}  // namespace

Node add_host(Graph& graph, std::string name) {
  graph.hosts.push_back({std::move(name), {}});
  return {LinkEnd::Node::kHost, graph.hosts.size() - 1};
}

Node add_switch(Graph& graph, std::string name, SwitchKind kind, int tier) {
  graph.switches.push_back({std::move(name), kind, tier, {}});
  return {LinkEnd::Node::kSwitch, graph.switches.size() - 1};
}

void connect(Graph& graph, Node a, Node b, Subnet subnet, const LinkParameters& parameters) {
  const std::size_t index = graph.links.size();
  Link link;
  link.subnet = subnet;
  link.mtu_bytes = parameters.mtu_bytes;
  link.rate_bits_per_second = parameters.rate_bits_per_second;
  // NICs implement the delay, and switches have none.
  const bool has_nic = a.kind == LinkEnd::Node::kHost || b.kind == LinkEnd::Node::kHost;
  link.delay_us = has_nic ? parameters.delay_us : 0;

  // A bridge shares its subnet with all links that have been added to it.
  std::uint32_t taken = 0;
  if (is_bridge(graph, a) || is_bridge(graph, b)) {
    for (const Link& other : graph.links) {
      if (other.subnet != subnet) continue;
      for (const LinkEnd& end : other.ends) {
        const std::uint32_t address = graph.interface(end).address.value;
        if (address != 0) taken = std::max(taken, address - subnet.network.value);
      }
    }
  }
  const std::uint64_t broadcast = (std::uint64_t{1} << (32 - subnet.prefix_length)) - 1;
  for (std::size_t side = 0; side < 2; ++side) {
    const Node node = side == 0 ? a : b;
    std::vector<Interface>& interfaces = interfaces_of(graph, node);
    Interface interface;
    interface.name = fmt::format("eth{}", interfaces.size());
    interface.prefix_length = subnet.prefix_length;
    interface.mtu_bytes = parameters.mtu_bytes;
    interface.link = index;
    if (!is_bridge(graph, node)) {
      ++taken;
      if (taken >= broadcast)
        throw std::runtime_error(fmt::format("subnet {} is too small for its links", subnet.text()));
      interface.address = {subnet.network.value + taken};
    }
    link.ends[side] = {node.kind, node.index, interfaces.size()};
    interfaces.push_back(std::move(interface));
  }
  graph.links.push_back(link);
}

}  // namespace plugfest::topology
