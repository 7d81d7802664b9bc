// The keeper: a background process that keeps a fabric alive and passes its namespaces to other processes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/live/state_folder.h"
#include "fabric/netns/fabric.h"
#include "fabric/system/file.h"
#include "fabric/topology/graph.h"

namespace plugfest::live {

/// Sends any number of descriptors. `socket`: a connected socket of type SOCK_SEQPACKET. Returns false if the receiver
/// has closed the socket or reads nothing within SO_SNDTIMEO.
bool send_descriptors(int socket, const std::vector<int>& fds);

/// Receives all descriptors of one call of send_descriptors(). Errors: std::runtime_error if the sender has closed the
/// socket or sends nothing within SO_RCVTIMEO, or if the descriptors exceed this process's limit.
std::vector<Descriptor> receive_descriptors(int socket);

/// Called in the keeper when the fabric is built. `specification`: the specification of its topology, valid in all
/// processes of the fabric. The returned object lives as long as the fabric. May throw std::exception.
using Attach = std::function<std::shared_ptr<void>(netns::Fabric& fabric, const std::string& specification)>;

/// Starts a keeper and returns after it has built the fabric. `record`: the caller sets name, topology, out_of_band and
/// reduction, the keeper sets the rest. `attach`: may be empty. The keeper survives the caller. It exits, and removes
/// the fabric, at SIGTERM or when its record is removed.
///
/// Returns the record of a killed keeper of the same name, if its files still existed. Errors: std::runtime_error if
/// the name is in use, the record cannot be written or the fabric cannot be built; nothing remains. Thread safety: call
/// it while the process has one thread.
std::optional<Record> start_keeper(const StateFolder& folder, Record record, const topology::Graph& graph,
                                   const netns::Options& options, const Attach& attach = {});

}  // namespace plugfest::live
