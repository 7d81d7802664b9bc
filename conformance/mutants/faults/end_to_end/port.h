// The state of this host's ports, for mutations that react to it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace plugfest::mutants {

/// Whether an Ethernet interface of this host has no carrier. `operstate` would change up to a second later than
/// `carrier`.
inline bool a_port_is_down() {
  std::error_code error;
  for (const auto& interface : std::filesystem::directory_iterator("/sys/class/net", error)) {
    if (!interface.path().filename().string().starts_with("eth")) continue;
    const std::string file = interface.path() / "carrier";
    const int carrier = static_cast<int>(TEMP_FAILURE_RETRY(open(file.c_str(), O_RDONLY | O_CLOEXEC)));
    if (carrier < 0) continue;
    char value = 0;
    const ssize_t count = TEMP_FAILURE_RETRY(read(carrier, &value, 1));
    const bool down = count == 1 ? value == '0' : count < 0 && errno == EINVAL;  // EINVAL: the interface is set down
    close(carrier);
    if (down) return true;
  }
  return false;
}

}  // namespace plugfest::mutants
