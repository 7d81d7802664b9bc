// The processes that the plugin of a rank has started, and their limit.
//
// Internal to this folder.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace plugfest::control {

/// Processes that a rank may have, without itself.
inline constexpr std::size_t kMaxProcesses = 256;

/// A variable in the environment of each rank, with another value for each. Processes that the plugin starts inherit
/// it.
inline constexpr const char* kRankVariable = "PLUGFEST_RANK";

/// The descendants of rank `pid` that have not been reaped, and processes that run after their parent has exited, if
/// their environment has kRankVariable with the value `mark`. Stops above kMaxProcesses. Empty if the kernel does not
/// list children (CONFIG_PROC_CHILDREN).
std::vector<pid_t> processes_of_plugin(pid_t pid, const std::string& mark);

/// Kills these processes, and those that they start, until none is left or a second has passed. Rank `pid` must have
/// received SIGKILL.
void end_processes_of_plugin(pid_t pid, const std::string& mark);

}  // namespace plugfest::control
