// From a graph to namespaces: what a fabric is made of, and how it is made.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/netns/sandbox/exit_cleanup.h"
#include "fabric/system/descriptor.h"
#include "fabric/topology/graph.h"

namespace plugfest::netns {

/// Descriptors are all that keeps a namespace alive, and with it the interfaces in it and their peers' links.
struct HostNamespaces {
  Descriptor network;
  Descriptor mounts;
};

struct BuiltFabric {
  std::vector<HostNamespaces> hosts;  ///< as in Graph::hosts
  std::vector<Descriptor> switches;   ///< network namespaces, as in Graph::switches
  Descriptor out_of_band;             ///< the one with the shared bridge
  Descriptor home_mounts;             ///< the mount namespace that it was built from, which switches use
  std::unique_ptr<ExitCleanup> afterwards = nullptr;  ///< takes back what is not in a namespace of ours
};

/// Builds everything. The calling thread must not share its current directory with others (unshare(CLONE_FS)), and is
/// left in namespaces of no use: it is expected to end. Errors: as Fabric's constructor.
BuiltFabric build(const topology::Graph& graph, const Options& options);

/// Sees to it that this process may hold all namespaces of the graph: two descriptors for a host, one for a switch, and
/// room for what it has and will have open beside. Raises the soft limit where that is enough. Errors:
/// std::runtime_error that says how to raise the hard one.
void require_descriptors(const topology::Graph& graph);

/// Gives the host or router called `node`, whose network namespace the calling thread is in, the routes that the kernel
/// took away when one of its interfaces went down or lost its address. Errors: std::runtime_error.
void restore_routes(const topology::Graph& graph, std::string_view node);

/// Puts the calling thread into a namespace. Errors: std::runtime_error.
void enter_namespace(const Descriptor& fd, int kind);

}  // namespace plugfest::netns
