// The process of an aggregation node: moves packets between sockets and the node, and obeys the manager.
#pragma once

#include <vector>

#include "fabric/system/file.h"

namespace plugfest::reduction {

/// Runs a node until the manager closes `control`, the connection to it. `sockets`: one for each address of the switch.
/// Errors: std::runtime_error.
void run_node(Descriptor control, std::vector<Descriptor> sockets);

}  // namespace plugfest::reduction
