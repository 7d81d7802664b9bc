// The keeper: a background process that keeps a fabric alive and passes its namespaces to other processes.
#pragma once

#include <optional>
#include <string>

#include "fabric/live/state_folder.h"
#include "fabric/netns/fabric.h"
#include "fabric/topology/graph.h"

namespace plugfest::live {

/// Starts a keeper and returns after it has built the fabric. `record`: the caller sets name, topology and out_of_band,
/// the keeper sets the rest. The keeper survives the caller. It exits, and removes the fabric, at SIGTERM or when its
/// record is removed.
///
/// Returns the record of a killed keeper of the same name, if its files still existed. Errors: std::runtime_error if
/// the name is in use, the record cannot be written or the fabric cannot be built; nothing remains. Thread safety: call
/// it while the process has one thread.
std::optional<Record> start_keeper(const StateFolder& folder, Record record, const topology::Graph& graph,
                                   const netns::Options& options);

}  // namespace plugfest::live
