// plugfest-rank --witness PLUGIN: NCCL's own loader takes the plugin, in a process that does nothing else.
#pragma once

namespace plugfest::rank {

inline constexpr const char* kWitnessOption = "--witness";

/// Writes to kControlFd what NCCL did, one field a line: its version, the net version that it took (0: none), the
/// plugin's name, the network that the communicator got, what init and finalize returned, how many devices it has. Or
/// "error" and a line that says why NCCL could not be asked. NCCL's log goes to kLogFd. Returns the exit code.
int be_witness(const char* plugin);

}  // namespace plugfest::rank
