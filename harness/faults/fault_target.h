// Finds the targets of faults (links, interfaces, hosts, addresses) by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/topology/graph.h"
#include "harness/faults/script.h"

namespace plugfest::faults {

// Errors of the find functions: std::runtime_error without the position in the script: `"a-d": did you mean a-b?`.

/// Both ends of a link, in the order of the name. `name`: "a-b", or "a.eth0-b.eth0" if the hosts have several links.
std::vector<Interface> find_link(const topology::Graph& graph, std::string_view name);

/// The interface with the name "a.eth0".
Interface find_interface(const topology::Graph& graph, std::string_view name);

/// An unused address of the interface's subnet; nullopt if all are in use.
std::optional<topology::Ipv4Address> free_address(const topology::Graph& graph, const Interface& interface);
/// The interface that has an address, as "a.eth0"; "" if none has it.
std::string owner_of(const topology::Graph& graph, topology::Ipv4Address address);
/// Whether an address is a host address of `subnet`: neither the network nor the broadcast address.
bool is_host_address(const topology::Subnet& subnet, topology::Ipv4Address address);
/// The subnet of an interface's link. Errors: std::runtime_error.
topology::Subnet subnet_of(const topology::Graph& graph, const Interface& interface);

/// Checks that a host exists. Returns `name`.
std::string find_host(const topology::Graph& graph, const std::string& name);

/// The interfaces of all hosts.
std::vector<Interface> host_interfaces(const topology::Graph& graph);

}  // namespace plugfest::faults
