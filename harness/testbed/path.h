// Paths through a fabric on which rules run.
#pragma once

#include <string>
#include <vector>

#include "fabric/topology/graph.h"

namespace plugfest::testbed {

/// Two ranks whose NICs reach each other, by name: "a.eth0" and "b.eth0".
struct RankPath {
  std::string near;
  std::string far;
};

/// Returns paths of `graph` that share no rank: each path in the order of the graph whose ranks are still unused.
std::vector<RankPath> disjoint_paths(const topology::Graph& graph);

}  // namespace plugfest::testbed
