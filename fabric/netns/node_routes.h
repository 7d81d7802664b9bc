// Installs the routing table of a host or router.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "fabric/netns/kernel/netlink.h"
#include "fabric/topology/graph.h"
#include "fabric/topology/routes.h"

namespace plugfest::netns {

/// The kernel's index of a node's interface. `interface`: its position in the node's interfaces.
int link_index(std::size_t interface);

/// The number of the routing table for packets from the address of a node's interface.
std::uint32_t source_table(std::size_t interface);

/// Adds a node's routes over the hops for which `usable` returns true. `node`: for error messages.
void add_routes(Netlink& netlink, const std::string& node, const topology::RoutingTable& table,
                const std::function<bool(const topology::Hop&)>& usable);

/// Adds the routes again that the kernel removed when an interface of `node` went down or lost its address. The calling
/// thread must be in the node's network namespace. Errors: std::runtime_error.
void restore_routes(const topology::Graph& graph, std::string_view node);

}  // namespace plugfest::netns
