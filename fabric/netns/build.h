// Builds a fabric: from a graph to namespaces, links, addresses and routes.
#pragma once

#include <memory>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/netns/sandbox/exit_cleanup.h"
#include "fabric/system/descriptor.h"
#include "fabric/topology/graph.h"

namespace plugfest::netns {

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

/// Builds a fabric. The calling thread must not share its current folder with other threads (unshare(CLONE_FS)). It is
/// left in arbitrary namespaces and should exit. Errors: as Fabric's constructor.
BuiltFabric build(const topology::Graph& graph, const Options& options);

/// Ensures that this process may open the descriptors for all namespaces of the graph (two for a host, one for a
/// switch) and 128 others. Raises the soft limit if necessary. Errors: std::runtime_error with the command that raises
/// the hard limit.
void require_descriptors(const topology::Graph& graph);

}  // namespace plugfest::netns
