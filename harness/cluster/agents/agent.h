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

/// Returns JSON: `kernel`, `system`, `cpu`, `user`; `plugin` {path, sha256}; `tool` {sha256}; `devices`
/// [{name, driver, firmware, model, state, link_layer, rate, mtu, gid, pfc}], of RDMA devices; `findings` [{name,
/// state, text, fix}], of the doctor's mode `system`. Takes well below a second.
std::string facts(const std::string& plugin);

}  // namespace plugfest::cluster
