// Puts a graph together, node by node and link by link; names interfaces and deals out addresses on the way.
#pragma once

#include <string>

#include "fabric/topology/graph.h"

namespace plugfest::topology {

/// What a link can carry, and how fast; see Link.
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

/// Adds a link, and an interface at each end. Between hosts and routers `a` takes the first address of the subnet and
/// `b` the second. A bridge has no address, and all its links are given the bridge's one subnet: there the host takes
/// the next free address in the order of the bridge's ports. Errors: std::runtime_error if a bridge's subnet has no
/// address left.
void connect(Graph& graph, Node a, Node b, Subnet subnet, const LinkParameters& parameters);

}  // namespace plugfest::topology
