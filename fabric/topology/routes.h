// Which way packets go: the routing tables of all hosts and routers of a graph.
#pragma once

#include <cstddef>
#include <vector>

#include "fabric/topology/graph.h"

namespace plugfest::topology {

/// A router to hand packets to, and the own interface that it is reached by.
struct Hop {
  std::size_t interface = 0;
  Ipv4Address gateway;
  auto operator<=>(const Hop&) const = default;
};

/// A destination and the equally short ways to it. 0.0.0.0/0 is the default route.
struct Route {
  Subnet to;
  std::vector<Hop> hops;
};

/// Routes of one node, beside those to the subnets that it is on, which the kernel makes by itself.
struct RoutingTable {
  std::vector<Route> routes;

  /// Interfaces that lead to routers, if there are two or more: packets that carry the address of such an interface are
  /// to leave by it, over these hops, whatever `routes` prefer.
  std::vector<std::vector<Hop>> by_source;
};

struct RoutingTables {
  std::vector<RoutingTable> hosts;     ///< as in Graph::hosts
  std::vector<RoutingTable> switches;  ///< as in Graph::switches; empty for bridges
};

/// All shortest ways between all subnets that hosts are on; hosts do not pass packets on. Neighbouring subnets that
/// share their ways are joined into one route, and what a router sends upwards is its default route, so that tables
/// stay short. Time: links times groups of subnets with the same routers.
RoutingTables routing_tables(const Graph& graph);

}  // namespace plugfest::topology
