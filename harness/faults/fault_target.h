// Links and interfaces by the names that people give them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/topology/graph.h"
#include "harness/faults/script.h"

namespace plugfest::faults {

// Errors of all: std::runtime_error, `"a-d": did you mean a-b?`, for the caller to put the place before it.

/// Both ends of a link, in the order of the name: "a-b", or "a.eth0-b.eth0" where hosts have several links.
std::vector<Interface> find_link(const topology::Graph& graph, std::string_view name);

/// "a.eth0"
Interface find_interface(const topology::Graph& graph, std::string_view name);

/// An address of the interface's subnet that nobody in the graph has, if there is one.
std::optional<topology::Ipv4Address> free_address(const topology::Graph& graph, const Interface& interface);
/// Who has an address, as "a.eth0"; "" for nobody.
std::string owner_of(const topology::Graph& graph, topology::Ipv4Address address);
/// Whether a host in `subnet` may have it.
bool is_host_address(const topology::Subnet& subnet, topology::Ipv4Address address);
/// The subnet of an interface's link. Errors: std::runtime_error.
topology::Subnet subnet_of(const topology::Graph& graph, const Interface& interface);

/// Returns `name`.
std::string find_host(const topology::Graph& graph, const std::string& name);

/// All interfaces of hosts.
std::vector<Interface> host_interfaces(const topology::Graph& graph);

}  // namespace plugfest::faults
