// Builds a graph node by node and link by link.
#pragma once

#include <cstddef>
#include <cstdint>
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

}  // namespace plugfest::topology
