// The process that runs on each host of a cluster: it starts ranks there and carries their channels.
#pragma once

#include <string>

#include "harness/cluster/agents/token.h"

namespace plugfest::cluster {

/// Serves the controller until it says that the run is over, or the connection breaks. `name`: the host's, unique in
/// the run. `version`: of plugfest. Processes of ranks end with the calling thread. `stop_fd`: when it becomes
/// readable, the run is over, too; -1: never. Errors: std::runtime_error if there is no controller at the address, or
/// it does not know the token.
void run_agent(const Meeting& meeting, const std::string& name, const std::string& version, int stop_fd = -1);

}  // namespace plugfest::cluster
