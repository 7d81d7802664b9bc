// A network interface as the NIC sees it: what the kernel says about it, and which interfaces carry a NIC.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/roce/wire/address.h"

namespace plugfest::roce {

/// One Ethernet interface of the current network namespace, as it was when it was read.
struct Interface {
  std::string name;                      ///< eth0
  int index = 0;                         ///< the kernel's number, > 0
  std::array<std::uint8_t, 6> mac = {};  ///< Ethernet address
  std::vector<Address> addresses;        ///< IPv4 first, then IPv6, in the kernel's order; never empty for a NIC
  int mtu_bytes = 0;                     ///< largest IP packet
  bool up = false;                       ///< set up by the administrator, and a carrier
  int speed_mbps = 0;                    ///< link speed that the driver reports; 0 if it reports none
};

/// Interfaces that carry a NIC, ordered by index: not loopback, an Ethernet address, at least one address that is more
/// than link-local, and a name that does not start with "oob". PLUGFEST_ROCE_INTERFACES=eth0,eth1 (environment)
/// restricts the list to those names. Where PLUGFEST_LOOPBACK_INTERFACES says what the host has (see fabric/loopback),
/// those. Errors: std::system_error if the kernel does not answer.
std::vector<Interface> list_nic_interfaces();

/// The interface with this index as it is now, or nothing if it is gone or no longer carries a NIC.
std::optional<Interface> read_nic_interface(int index);

/// The verbs device on an interface: roce_eth0.
std::string device_name(const Interface& interface);

}  // namespace plugfest::roce
