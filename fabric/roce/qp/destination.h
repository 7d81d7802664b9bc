// Destinations of packets: checked address vectors, and the paths that follow from them.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/port/port_set.h"
#include "fabric/roce/port/transmit_path.h"
#include "fabric/roce/qp/nic_context.h"
#include "fabric/roce/wire/address.h"

namespace plugfest::roce {

struct Destination {
  Address local;
  Address remote;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;

  friend bool operator==(const Destination&, const Destination&) = default;
};

/// Checks an address vector. nullopt if it has no GID, a port other than 1, an unknown local GID index, or a remote GID
/// of another address family than the local one. With the NIC's lock.
std::optional<Destination> destination_of(const ibv_ah_attr& attributes, const PortSet& ports);

/// The path of a queue pair's packets. With the NIC's lock. Errors: std::system_error if the UDP port of the local
/// address cannot be opened.
Path path_to(const Destination& destination, PortSet& ports, std::uint32_t queue_pair_number);

/// The object behind the `ibv_ah` of a datagram's work request.
struct AddressHandle : ibv_ah {
  /// Errors: std::system_error with EINVAL for an invalid address vector.
  AddressHandle(const NicContext& nic, const ProtectionDomain& domain, const ibv_ah_attr& attributes);

  const ProtectionDomain& domain;
  const Destination destination;
};

}  // namespace plugfest::roce
