// Fabrics that a keeper holds, from the side of those who use them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/live/state_folder.h"
#include "fabric/netns/build.h"
#include "fabric/netns/sandbox/sandbox.h"
#include "fabric/topology/graph.h"

namespace plugfest::live {

/// A live fabric in the hands of this process.
struct Joined {
  topology::Graph graph;
  netns::SandboxNamespaces sandbox;
  netns::BuiltFabric built;
};

/// Those that are up, by name. What killed keepers have left is removed, and named in `stale`.
std::vector<Record> list(const StateFolder& folder, std::vector<Record>& stale);

/// Gets the fabric's namespaces from its keeper; netns::join_sandbox() and netns::Fabric take it from there. Errors:
/// std::runtime_error if the keeper does not answer, or this process may not have so many files open.
Joined join(const StateFolder& folder, const Record& record);

/// Ends the keeper, and returns when it is gone, and the name free. A keeper that does not end by itself is killed.
void take_down(const StateFolder& folder, const Record& record);

}  // namespace plugfest::live
