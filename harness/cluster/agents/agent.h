// The process that runs on each host of a cluster: it starts ranks and forwards their channels.
#pragma once

#include <string>

#include "harness/cluster/agents/token.h"

namespace plugfest::cluster {

/// Serves the controller until the controller ends the run, or the connection breaks. `name`: the host's name, unique
/// in the run. `version`: of plugfest. Processes of ranks end with the calling thread. `stop_fd`: the run also ends
/// when it becomes readable; -1: never. Errors: std::runtime_error if no controller listens at the address, or it does
/// not know the token.
void run_agent(const Meeting& meeting, const std::string& name, const std::string& version, int stop_fd = -1);

}  // namespace plugfest::cluster
