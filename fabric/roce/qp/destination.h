// Where packets go: an address vector as verbs has it, checked, and the path that follows from it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/port/transmit_path.h"
#include "fabric/roce/port/port_set.h"
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

/// Nothing if the address vector has no GID, another port, an unknown local GID index, or a GID of the other address
/// family than that. With the NIC's lock.
std::optional<Destination> destination_of(const ibv_ah_attr& attributes, const PortSet& ports);

/// The path of a queue pair's packets, by a socket of its own choice. With the NIC's lock. Errors: std::system_error if
/// the local address has gone and was not used before.
Path path_to(const Destination& destination, PortSet& ports, std::uint32_t queue_pair_number);

/// What the `ibv_ah` in a datagram's work request points into.
struct AddressHandle : ibv_ah {
  /// Errors: std::system_error with EINVAL if destination_of() has none.
  AddressHandle(const NicContext& nic, const ProtectionDomain& domain, const ibv_ah_attr& attributes);

  const ProtectionDomain& domain;
  const Destination destination;
};

}  // namespace plugfest::roce
