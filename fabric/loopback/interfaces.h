// The interfaces of a host that is only a name: told to its processes by an environment variable.
#pragma once

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plugfest::loopback {

struct Interface {
  std::string name;  ///< eth0
  in_addr address = {};
  int prefix_length = 0;
  int mtu_bytes = 0;

  /// Beyond those that the kernel gives.
  int index = 0;
  /// 02:00 and the four bytes of the address.
  std::array<std::uint8_t, 6> mac() const;
};

/// "eth0=127.1.0.1/24,9000;eth1=…": what the variable is to hold.
inline constexpr const char* kVariable = "PLUGFEST_LOOPBACK_INTERFACES";
std::string to_text(const std::vector<Interface>& interfaces);

/// Of this process, or nothing where the variable is absent. What cannot be read is left out.
std::optional<std::vector<Interface>> interfaces_of_this_process();

}  // namespace plugfest::loopback
