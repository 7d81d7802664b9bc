// In-network reduction: starts it in a fabric, and lets processes of its hosts find it.
#pragma once

#include <memory>
#include <string>

#include "fabric/netns/fabric.h"
#include "fabric/topology/graph.h"
#include "harness/control/launcher.h"

namespace plugfest::reduction {
class Processes;
}

namespace plugfest::bed {

/// Whether switches of `graph` can reduce.
bool can_reduce(const topology::Graph& graph);

/// `user`: the option that needs reduction, such as "--algo collnet". Errors: std::runtime_error if no switch of
/// `graph` can reduce.
void require_reduction(const topology::Graph& graph, const std::string& user);

/// Starts the aggregation nodes and their manager. They end with the returned object, which must not outlive the
/// fabric. `specification`: the argument of topology::named() for the fabric's topology. Errors: std::runtime_error.
std::shared_ptr<reduction::Processes> start_reduction(netns::Fabric& fabric, const std::string& specification);

/// Adds the variables with which processes in the hosts of `graph` find the manager, and plugfest's libsharp_coll.so.5.
/// Errors: as search_first_in().
void add_reduction(const topology::Graph& graph, control::Environment& environment);

/// Adds the variables with which a process finds no manager, although there is one.
void add_absent_reduction(control::Environment& environment);

}  // namespace plugfest::bed
