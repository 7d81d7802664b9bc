// Draws a topology.
#pragma once

#include <string>

#include "fabric/topology/graph.h"

namespace plugfest::topology {

/// Returns the graph in the DOT language of Graphviz, for `dot -Tsvg`. Hosts are at the bottom in their order, switches
/// above them by tier; hosts alone form a circle or a row. Labels on links show the subnet and, if set, rate and delay.
std::string to_dot(const Graph& graph);

}  // namespace plugfest::topology
