// Paths through a fabric on which rules run, and groups of ranks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fabric/topology/graph.h"

namespace plugfest::bed {

/// Two ranks whose NICs reach each other, by name: "a.eth0" and "b.eth0".
struct RankPath {
  std::string near;
  std::string far;
};

/// Ranks on different hosts, and the interfaces over which they reach each other.
///
/// A rank is a process in a host's namespace and sees all interfaces of the host. One process therefore reaches several
/// peers, each over its own interface: in the triangle, rank "a" reaches "b" over "a.eth0" and "c" over "a.eth1".
struct RankGroup {
  RankGroup() = default;
  /// The two ranks of a path, 0 and 1, which have the names of their interfaces.
  explicit RankGroup(const RankPath& path);

  std::vector<std::string> ranks;
  /// interfaces[i][j]: "a.eth0", over which ranks[i] reaches ranks[j]. "": none, and for i == j.
  std::vector<std::vector<std::string>> interfaces;

  /// `count` of these ranks that all reach each other; nullopt if there are not enough.
  std::optional<RankGroup> complete(std::size_t count) const;
};

/// Parses "a.eth0,c.eth0". Errors: std::runtime_error unless these are interfaces of two hosts of `graph`.
RankPath parse_path(const std::string& text, const topology::Graph& graph);

/// Returns one rank for each host, with the host's name. If several paths connect two hosts, `interfaces` has the first
/// one of the graph. These ranks are separate from the ranks of paths.
RankGroup ranks_of_hosts(const topology::Graph& graph);

/// Returns paths of `graph` that share no rank: in graph order, each path whose ranks are still unused.
std::vector<RankPath> disjoint_paths(const topology::Graph& graph);

}  // namespace plugfest::bed
