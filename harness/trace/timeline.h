// Joins the recordings of all ranks of a job into one timeline.
#pragma once

#include <string>
#include <vector>

#include "harness/trace/recording.h"

namespace plugfest::trace {

/// A timeline in Chrome's format: a process for each rank, tracks for the calls of the application, the operations and
/// the channels, with arrows from each send to its receive. It also contains the transfers, for read_transfers().
std::string merge(const std::vector<Recording>& recordings);

}  // namespace plugfest::trace
