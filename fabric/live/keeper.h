// The background process that keeps a fabric alive and hands its namespaces to who asks.
#pragma once

#include <optional>
#include <string>

#include "fabric/live/state_folder.h"
#include "fabric/netns/fabric.h"
#include "fabric/topology/graph.h"

namespace plugfest::live {

/// Builds `graph` in a process that stays when the caller ends, and returns once it is up. `record`: name, topology and
/// out_of_band; the rest is filled in. The keeper ends, and the fabric with it, at SIGTERM, or when its
/// record is removed.
///
/// Returns the record of a killed keeper that had left its files under the name. Errors: std::runtime_error if the name
/// is taken, the record cannot be written, or with the reason why the fabric could not be built; nothing is left then.
/// Thread safety: to be called while the process has one thread.
std::optional<Record> start_keeper(const StateFolder& folder, Record record, const topology::Graph& graph,
                                   const netns::Options& options);

}  // namespace plugfest::live
