// Graphs from YAML files, and the calls that build a graph node by node and link by link.
#pragma once

#include <filesystem>
#include <string>

#include "fabric/topology/graph.h"

namespace plugfest::topology {

struct LinkParameters {
  int mtu_bytes = 9000;
  std::uint64_t rate_bits_per_second = 0;
  std::uint32_t delay_us = 0;
};

/// A host or switch that has been added to a graph.
struct Node {
  LinkEnd::Node kind = LinkEnd::Node::kHost;
  std::size_t index = 0;
};

Node add_host(Graph& graph, std::string name);
Node add_switch(Graph& graph, std::string name, SwitchKind kind, int tier);

/// Adds a link and an interface at each end. Between hosts and routers, `a` gets the first address of the subnet and
/// `b` the second. A bridge has no address: all links of connected bridges must have the same subnet, and the host or
/// router at each link gets the next free address. A link between switches has no delay. Errors: std::runtime_error if
/// the subnet has no free address.
void connect(Graph& graph, Node a, Node b, Subnet subnet, const LinkParameters& parameters);

/// Reads a topology from a file such as
///
///     defaults:                                     # for links without a value of their own
///       {mtu: 9000, rate: 10Gbit, delay: 5us}
///     hosts: [a, b, c]
///     switches:
///       - {name: s1, subnet: 10.1.0.0/24}             # kind: bridge is the default
///       - {name: r1, kind: router, tier: 2}
///     links:
///       - {ends: [a, b], subnet: 192.168.1.0/24, rate: 1Gbit}
///       - {ends: [c, r1]}                             # subnet: the next free /30 of 10.0.0.0/8
///       - {ends: [a, s1]}                             # subnet: the bridge's
///
/// Required fields: `hosts` and `links`; `ends` of a link; `name` of a switch; `subnet` of a bridge.
/// Errors: std::runtime_error "topology FILE:LINE: …" that names the field.
Graph read_file(const std::filesystem::path& path);

}  // namespace plugfest::topology
