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
/// `b` the second. A bridge has no address; all its links, and those of bridges that it is linked to, are to be given
/// one subnet, of which each link's host or router takes the next free address. A link between switches has no delay.
/// Errors: std::runtime_error if the subnet has no address left.
void connect(Graph& graph, Node a, Node b, Subnet subnet, const LinkParameters& parameters);

}  // namespace plugfest::topology
