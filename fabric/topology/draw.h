// Draws a topology.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "fabric/topology/graph.h"

namespace plugfest::topology {

/// Parts of a graph that its drawing marks, each with a number that selects a color.
struct Marks {
  std::map<std::size_t, std::size_t> switches;  ///< index in Graph::switches
  std::map<std::size_t, std::size_t> links;     ///< index in Graph::links
  std::set<std::size_t> roots;                  ///< switches with a double border
};

/// Returns the graph in the DOT language of Graphviz, for `dot -Tsvg`. Hosts are at the bottom in their order, switches
/// above them by tier; hosts alone form a circle or a row. Labels on links show the subnet and, if set, rate and delay.
std::string to_dot(const Graph& graph, const Marks& marks = {});

}  // namespace plugfest::topology
