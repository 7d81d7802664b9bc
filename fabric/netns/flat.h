// The layout without namespaces for hosts: all interfaces lie side by side in the namespace of the caller.
#pragma once

#include <string>

#include "fabric/netns/build.h"
#include "fabric/netns/fabric.h"
#include "fabric/topology/graph.h"

namespace plugfest::netns {

/// What an interface of a host is called there: eth0 of host a is "a-eth0".
std::string flat_name(const topology::Host& host, const topology::Interface& interface);

/// Makes the links of a graph as veth pairs, both ends in the caller's network namespace, so set that packets between
/// two addresses of one machine cross them. Each host gets a mount namespace of its own, as in build().
///
/// There is no out-of-band network, as all reach each other anyway.
///
/// Interfaces and settings are taken back when the result goes or the process ends. One such fabric exists in a network
/// namespace at a time. Errors: std::runtime_error: another one exists, names or addresses are taken, the graph has
/// switches.
BuiltFabric build_flat(const topology::Graph& graph, const Options& options);

}  // namespace plugfest::netns
