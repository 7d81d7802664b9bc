// A fabric without network namespaces for hosts: all interfaces are in the caller's namespace.
#pragma once

#include <string>

#include "fabric/netns/build.h"
#include "fabric/netns/fabric.h"
#include "fabric/topology/graph.h"

namespace plugfest::netns {

/// The name of a host's interface in the shared namespace: "a-eth0" for eth0 of host a.
std::string flat_name(const topology::Host& host, const topology::Interface& interface);

/// Creates the links of a graph as veth pairs with both ends in the caller's network namespace, and configures them so
/// that packets between two addresses of this machine cross the link. Each host gets its own mount namespace, as in
/// build(). The fabric has no out-of-band network, since all addresses are reachable.
///
/// Interfaces and settings are removed when the result is destroyed or the process exits. Only one flat fabric can
/// exist in a network namespace. Errors: std::runtime_error if another one exists, an interface name is in use, or the
/// graph has switches.
BuiltFabric build_flat(const topology::Graph& graph, const Options& options);

}  // namespace plugfest::netns
