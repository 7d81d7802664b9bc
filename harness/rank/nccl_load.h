// plugfest-rank --load-with-nccl PLUGIN: loads the plugin with NCCL's own loader and writes the outcome.
#pragma once

namespace plugfest::rank {

inline constexpr const char* kNcclLoadOption = "--load-with-nccl";

/// Writes the members of plugin::NcclLoad to kControlFd, one per line: nccl, api, name, network, init, finalize,
/// devices. When NCCL cannot be used: "error" and a line with the reason. NCCL's log goes to kLogFd. Returns the exit
/// code if it returns.
int report_nccl_load(const char* plugin);

}  // namespace plugfest::rank
