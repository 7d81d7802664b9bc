// Joins the recordings of all ranks of a job into one timeline.
#pragma once

#include <string>
#include <vector>

#include "harness/trace/messages.h"
#include "harness/trace/recording.h"

namespace plugfest::trace {

/// A timeline in Chrome's format: a process for each rank, tracks for the calls of the application, the operations and
/// the channels, with arrows from each send to its receive. It also contains the transfers, for read_transfers().
/// `job`: if not null, each host has a further process with the messages of its NICs, and arrows lead to them from the
/// work of the NIC that the net plugin reported.
std::string merge(const std::vector<Recording>& recordings, const CapturedJob* job = nullptr);

}  // namespace plugfest::trace
