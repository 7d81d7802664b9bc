// The interfaces of a loopback host, which its processes get in an environment variable.
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

  /// An interface index above all indexes of the kernel.
  int index = 0;
  /// The Ethernet address: 02:00 and the four bytes of the IPv4 address.
  std::array<std::uint8_t, 6> mac() const;
};

/// The environment variable: "eth0=127.1.0.1/24,9000;eth1=…", with address, prefix length and MTU.
inline constexpr const char* kVariable = "PLUGFEST_LOOPBACK_INTERFACES";
std::string to_text(const std::vector<Interface>& interfaces);

/// The interfaces of this process; nullopt if the variable is not set. Invalid entries are skipped.
std::optional<std::vector<Interface>> interfaces_of_this_process();

}  // namespace plugfest::loopback
