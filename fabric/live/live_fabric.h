// Lists, joins and ends the fabrics of keepers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/live/state_folder.h"
#include "fabric/netns/build.h"
#include "fabric/netns/sandbox.h"
#include "fabric/topology/graph.h"

namespace plugfest::live {

/// A fabric of a keeper. This process also holds its namespaces.
struct Joined {
  topology::Graph graph;
  netns::SandboxNamespaces sandbox;
  netns::BuiltFabric built;
};

/// The fabrics that are up, sorted by name. Removes the files of killed keepers and appends their records to `stale`.
std::vector<Record> list(const StateFolder& folder, std::vector<Record>& stale);

/// Gets the namespaces of a fabric from its keeper, for netns::join_sandbox() and netns::Fabric. Errors:
/// std::runtime_error if the keeper does not answer or the descriptors exceed this process's limit.
Joined join(const StateFolder& folder, const Record& record);

/// Ends the keeper of a fabric with SIGTERM, or SIGKILL if it does not react, and waits until its name is free. Relies
/// on no content of the record. Errors: std::runtime_error if the fabric is still up, such as in a process namespace in
/// which the keeper is not visible.
void take_down(const StateFolder& folder, const std::string& name);

}  // namespace plugfest::live
