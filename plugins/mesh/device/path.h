// Which NIC here to talk from, and which address of the peer to talk to.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plugins/mesh/device/address.h"

namespace mesh {

/// An address of a NIC of this host.
struct LocalAddress {
  NetworkAddress network;
  std::size_t device = 0;  ///< index of the NIC
};

/// An address that a listener can be reached at.
struct PeerAddress {
  NetworkAddress network;
  bool of_listening_device = false;  ///< it belongs to the device that listen was called for

  auto operator<=>(const PeerAddress&) const = default;
};

/// One way to the peer.
struct Path {
  std::size_t device = 0;  ///< the NIC here
  Address local;
  Address peer;
  bool one_subnet = false;  ///< else by a route
};

/// The source address that the kernel would use towards an address, or nothing without a route.
using RouteLookup = std::function<std::optional<Address>(const Address& peer)>;

/// All ways to the peer, best first.
///
/// First those between addresses on one subnet: from the device that was asked for to the device that listens, then
/// with one of the two, then any. Only if there is none: those by the kernel's routes, from the NIC that they leave by.
/// Empty if nothing leads there.
std::vector<Path> find_paths(const std::vector<LocalAddress>& here, std::size_t asked_device,
                             const std::vector<PeerAddress>& peer, const RouteLookup& route);

/// Asks the kernel, without sending anything.
std::optional<Address> kernel_route(const Address& peer);

/// "192.168.100.0/24, 192.168.101.0/24": each subnet once, for messages.
std::string subnets_text(const std::vector<NetworkAddress>& addresses);

}  // namespace mesh
