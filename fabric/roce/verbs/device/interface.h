// Network interfaces that carry a NIC, and their state.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/roce/wire/address.h"

namespace plugfest::roce {

/// A snapshot of one Ethernet interface of the current network namespace.
struct Interface {
  std::string name;                      ///< eth0
  int index = 0;                         ///< kernel's interface index, > 0
  std::array<std::uint8_t, 6> mac = {};  ///< Ethernet address
  std::vector<Address> addresses;        ///< IPv4 first, then IPv6, in the kernel's order; never empty for a NIC
  int mtu_bytes = 0;                     ///< largest IP packet
  bool up = false;                       ///< administratively up, and with carrier
  int speed_mbps = 0;                    ///< link speed reported by the driver; 0 if unknown
};

/// Lists the interfaces that carry a NIC, sorted by index: Ethernet interfaces except loopback, with at least one
/// address that is not link-local, and a name that does not start with "oob". Environment:
/// PLUGFEST_ROCE_INTERFACES=eth0,eth1 restricts the list to these names; PLUGFEST_LOOPBACK_INTERFACES replaces the
/// kernel's interfaces (fabric/loopback). Errors: std::system_error if a query fails.
std::vector<Interface> list_nic_interfaces();

/// Reads the interface with this index; nullopt if it does not exist or does not carry a NIC.
std::optional<Interface> read_nic_interface(int index);

/// Name of the verbs device on an interface: roce_eth0.
std::string device_name(const Interface& interface);

/// Name of the device's node in /dev/infiniband, from the interface's index: uverbs2.
std::string node_name(const Interface& interface);

}  // namespace plugfest::roce
