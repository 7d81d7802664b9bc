// The facts that an agent collects about its host.
#pragma once

#include <string>

namespace plugfest::cluster {

/// Returns JSON: `kernel`, `system`, `cpu`, `user`; `plugin` {path, sha256}; `tool` {sha256}; `devices`
/// [{name, driver, firmware, model, state, link_layer, rate, mtu, gid, pfc}], of RDMA devices; `findings` [{name,
/// state, text, fix}], of the doctor's mode `system`. Takes well below a second.
std::string facts(const std::string& plugin);

}  // namespace plugfest::cluster
