// The state of this host's ports, for mutations that react to it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace plugfest::mutants {

/// Whether an Ethernet interface of this host has no carrier. `operstate` would change up to a second later than
/// `carrier`.
inline bool a_port_is_down() {
  std::error_code error;
  for (const auto& interface : std::filesystem::directory_iterator("/sys/class/net", error)) {
    if (!interface.path().filename().string().starts_with("eth")) continue;
    std::string carrier;
    std::getline(std::ifstream(interface.path() / "carrier"), carrier);
    if (carrier != "1") return true;
  }
  return false;
}

}  // namespace plugfest::mutants
