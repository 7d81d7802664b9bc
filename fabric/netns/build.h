// Builds the namespaces, links, addresses and routes of a graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/netns/netlink.h"
#include "fabric/netns/supervision.h"
#include "fabric/system/file.h"
#include "fabric/topology/graph.h"
#include "fabric/topology/routes.h"

namespace plugfest::netns {

/// The kernel's index of a node's interface. `interface`: its position in the node's interfaces.
int link_index(std::size_t interface);

/// The number of the routing table for packets from the address of a node's interface.
std::uint32_t source_table(std::size_t interface);

/// Adds a node's routes over the hops for which `usable` returns true. `node`: the name of the node in error messages.
void add_routes(Netlink& netlink, const std::string& node, const topology::RoutingTable& table,
                const std::function<bool(const topology::Hop&)>& usable);

/// Adds the routes again that the kernel removed when an interface of `node` went down or lost its address. The calling
/// thread must be in the node's network namespace. Errors: std::runtime_error.
void restore_routes(const topology::Graph& graph, std::string_view node);

/// The namespaces of a host. The kernel removes a namespace, its interfaces and their links when the last descriptor
/// and the last process in the namespace are gone.
struct HostNamespaces {
  Descriptor network;
  Descriptor mounts;
};

/// Everything that keeps a fabric alive.
struct BuiltFabric {
  std::vector<HostNamespaces> hosts;               ///< in the order of Graph::hosts
  std::vector<Descriptor> switches;                ///< network namespaces, in the order of Graph::switches
  Descriptor out_of_band;                          ///< network namespace of the shared bridge
  Descriptor home_mounts;                          ///< mount namespace of the builder, which switches use
  std::unique_ptr<ExitCleanup> cleanup = nullptr;  ///< removes interfaces in the machine's own namespace
};

/// Builds a fabric. The calling thread must not share its current folder with other threads (unshare(CLONE_FS)).
/// Afterwards the thread is in arbitrary namespaces and should exit. Errors: as Fabric's constructor.
BuiltFabric build(const topology::Graph& graph, const Options& options);

/// Ensures that this process may open the descriptors for all namespaces of the graph (two for a host, one for a
/// switch) and 128 others. Raises the soft limit if necessary. Errors: std::runtime_error with the command that raises
/// the hard limit.
void require_descriptors(const topology::Graph& graph);

}  // namespace plugfest::netns
