// The addresses of a port: its RoCE v2 GIDs for IP addresses of this host.
#pragma once

#include <ifaddrs.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plugins/mesh/device/address.h"

namespace mesh {

/// An address of a NIC and its index in the port's GID table.
struct DeviceAddress {
  NetworkAddress network;
  std::uint8_t gid_index = 0;

  bool operator==(const DeviceAddress&) const = default;
};

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};
/// The addresses of this host's interfaces.
using Interfaces = std::unique_ptr<ifaddrs, FreeInterfaces>;
/// Errors: Failure.
Interfaces list_interfaces();

/// The GID table of an open port. Thread-safe.
class GidTable {
 public:
  /// Reads the table. `name`: the port's name in messages. `places`: number of entries in the GID tables of all ports.
  /// `only_index`: the only GID index to use; nullopt: all. Errors: Failure.
  GidTable(ibv_context* context, std::uint8_t port, std::string name, std::size_t places,
           std::optional<int> only_index);

  /// The addresses that the last reading of the table found.
  std::vector<DeviceAddress> addresses() const;
  /// The index of the RoCE v2 GID for `address` in the table, which is read again. Errors: Failure if the GID is not in
  /// the table any more.
  std::uint8_t index_of(const Address& address) const;
  /// Reads the addresses again. `interfaces`: listed just before; all tables can share the list. Logs at level INFO
  /// which addresses were added or removed. Errors: Failure; the addresses stay as they were.
  void refresh(const Interfaces& interfaces);

 private:
  std::vector<ibv_gid_entry> read_gids() const;
  std::vector<DeviceAddress> read_addresses(const Interfaces& interfaces) const;
  bool has_gid(int index, const Address& address) const;

  ibv_context* const context_;
  const std::uint8_t port_;
  const std::string name_;
  const std::size_t places_;
  const std::optional<int> only_index_;

  mutable std::mutex mutex_;  ///< protects `addresses_`
  std::vector<DeviceAddress> addresses_;
};

}  // namespace mesh
