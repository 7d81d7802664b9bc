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

/// The devices of this host. Thread safety: one thread at a time.
class Devices {
 public:
  virtual ~Devices() = default;
  /// The device that has `address`; nullopt if none has it.
  virtual std::optional<LocalDevice> with(const Address& address) const = 0;
  virtual std::vector<Address> addresses() const = 0;
};

/// The devices of the libibverbs that the program has loaded, or no devices if it has loaded none. They are open until
/// the process ends.
const Devices& program_devices();

/// The address from which this host sends to `destination`; nullopt with errno set if there is no route. `interface`:
/// the scope of a link-local destination.
std::optional<Address> source_for(const Address& destination, int interface);

}  // namespace plugfest::rdma_cm
