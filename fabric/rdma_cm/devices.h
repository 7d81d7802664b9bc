// The RDMA devices of this process, found by their IP addresses.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fabric/roce/wire/address.h"

namespace plugfest::rdma_cm {

using roce::Address;
using roce::Endpoint;

/// A port of a device that has an IP address as GID.
struct LocalDevice {
  std::uint64_t node_guid;  ///< in network order, as ibv_get_device_guid() returns it
  std::uint32_t index;      ///< as ibv_get_device_index() returns it
  std::uint8_t port;
  std::uint8_t gid_index;
  std::uint8_t mtu;  ///< ibv_mtu: the active MTU of the port
};

/// The device that has `address`; nullopt if none has it, or if libibverbs is not loaded. Opens all devices at the
/// first call. Thread safety: one thread at a time.
std::optional<LocalDevice> device_of(const Address& address);

/// The addresses of all devices. Thread safety: as device_of().
std::vector<Address> device_addresses();

/// The address from which this host sends to `destination`; nullopt with errno set if there is no route. `interface`:
/// the scope of a link-local destination.
std::optional<Address> source_for(const Address& destination, int interface);

}  // namespace plugfest::rdma_cm
