// Whether a rank is stopped, for mutations that wait for a peer.
#pragma once

#include <dirent.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace plugfest::mutants {

/// Whether any rank on this machine is stopped.
inline bool a_peer_is_stopped() {
  DIR* const processes = opendir("/proc");
  if (processes == nullptr) return false;
  bool stopped = false;
  while (const dirent* const entry = readdir(processes)) {
    if (std::atoi(entry->d_name) <= 0) continue;
    const std::string folder = std::string("/proc/") + entry->d_name;
    std::string command, state;
    std::getline(std::ifstream(folder + "/cmdline"), command, '\0');
    std::getline(std::ifstream(folder + "/stat"), state);
    const std::size_t name_end = state.rfind(") ");
    if (command.ends_with("plugfest-rank") && name_end != std::string::npos && state[name_end + 2] == 'T')
      stopped = true;
  }
  closedir(processes);
  return stopped;
}

}  // namespace plugfest::mutants
