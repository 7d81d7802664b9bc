// Computes the routing tables of all hosts and routers of a graph.
#pragma once

#include <cstddef>
#include <vector>

#include "fabric/topology/graph.h"

namespace plugfest::topology {

/// A next hop: a gateway, and the node's interface that leads to it.
struct Hop {
  std::size_t interface = 0;
  Ipv4Address gateway;
  auto operator<=>(const Hop&) const = default;
};

/// A destination and its equal-cost next hops. 0.0.0.0/0 is the default route.
struct Route {
  Subnet to;
  std::vector<Hop> hops;
};

/// Routes of one node, without routes to its own subnets, which the kernel adds.
struct RoutingTable {
  std::vector<Route> routes;

  /// Source routing for a node with two or more interfaces that lead to routers: packets with the address of such an
  /// interface leave through it, over these hops, instead of over `routes`.
  std::vector<std::vector<Hop>> by_source;
};

struct RoutingTables {
  std::vector<RoutingTable> hosts;     ///< in the order of Graph::hosts
  std::vector<RoutingTable> switches;  ///< in the order of Graph::switches; empty for bridges
};

/// Computes all shortest routes between the subnets of hosts. Hosts do not forward packets. To keep tables short,
/// neighboring subnets with the same next hops are merged into one route, and upward routes of a router become its
/// default route. Time: number of links times number of groups of subnets with the same routers.
RoutingTables routing_tables(const Graph& graph);

}  // namespace plugfest::topology
