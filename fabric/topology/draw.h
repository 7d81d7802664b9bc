// A topology as a drawing.
#pragma once

#include <string>

#include "fabric/topology/graph.h"

namespace plugfest::topology {

/// The graph in the language of Graphviz, for `dot -Tsvg`: hosts at the bottom, switches above them by tier, links with
/// their subnet and, where one is set, rate and delay.
std::string to_dot(const Graph& graph);

}  // namespace plugfest::topology
