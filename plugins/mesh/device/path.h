// Chooses the local NIC and the peer's address for a connection.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plugins/mesh/device/address.h"
#include "plugins/mesh/device/device.h"

namespace mesh {

/// An address of a NIC of this host.
struct LocalAddress {
  NetworkAddress network;
  std::size_t device = 0;  ///< index of the NIC
};

/// An address on which a peer listens.
struct PeerAddress {
  NetworkAddress network;
  bool of_listening_device = false;  ///< whether it belongs to the device that listen was called for

  auto operator<=>(const PeerAddress&) const = default;
};

/// A pair of addresses between which a connection is possible.
struct Path {
  std::size_t device = 0;  ///< index of the local NIC
  Address local;
  Address peer;
  bool one_subnet = false;  ///< false: through a router
};

/// The source address that the kernel uses for packets to `peer`; nullopt without a route.
using RouteLookup = std::function<std::optional<Address>(const Address& peer)>;

/// All paths to the peer, best first; empty if there is none.
///
/// A path joins two addresses on one subnet. If several subnets of this host contain an address of the peer, the one
/// with the longest prefix is used, as in the kernel's routing. If the hosts share no subnet, a path follows a route of
/// the kernel whose source address belongs to a NIC. Paths from the NICs `requested`, the NICs of the device that NCCL
/// asked for, are better than others; among equal paths, paths to the listening device are better.
std::vector<Path> find_paths(const std::vector<LocalAddress>& local, const std::vector<std::size_t>& requested,
                             const std::vector<PeerAddress>& peer, const RouteLookup& route);

/// The paths that carry a connection together: `paths[chosen]`, and if it is on one subnet, up to `most` - 1 others on
/// one subnet, from other NICs of this host to other addresses of the peer. If `requested` lists several NICs, either
/// all of the paths use these or none does.
std::vector<Path> parallel_paths(const std::vector<Path>& paths, std::size_t chosen,
                                 const std::vector<std::size_t>& requested, std::size_t most);

/// A RouteLookup in the kernel's routing table. Sends no packet.
std::optional<Address> kernel_route(const Address& peer);

/// The subnets of the addresses, each once, for messages: "192.168.100.0/24, 192.168.101.0/24".
std::string subnets_text(const std::vector<NetworkAddress>& addresses);

/// The addresses of the NICs, with the indexes of the NICs in the list.
std::vector<LocalAddress> local_addresses(const DeviceList& devices);

/// The paths to a peer, best first, and the current path. Not thread-safe.
class PathChoice {
 public:
  /// `requested`: indexes of the NICs of the device that NCCL asked for, at least one.
  PathChoice(DeviceList devices, std::vector<std::size_t> requested);

  const DeviceList& devices() const { return devices_; }
  bool empty() const { return paths_.empty(); }
  /// The best path, until `next` is called. There must be a path.
  const Path& current() const { return paths_[current_]; }
  /// The paths that carry the connection together, at most `most`; the current one is the first.
  std::vector<Path> parallel(std::size_t most) const { return parallel_paths(paths_, current_, requested_, most); }

  /// Finds the paths to `peer`. If there is none, calls `refresh` and finds them again. Errors: Failure.
  void find(const std::vector<PeerAddress>& peer);
  /// Adds a path that `find` does not find. Its NIC is the first one of the requested device.
  void add(const Address& local, const Address& peer);
  /// Makes the next path the current one. Returns false if there is none.
  bool next();
  /// Reads the addresses of the NICs again; the paths stay as they are. Returns false if this object has read them
  /// already. Errors: Failure.
  bool refresh();

 private:
  const DeviceList devices_;
  const std::vector<std::size_t> requested_;
  std::vector<Path> paths_;
  std::size_t current_ = 0;
  bool refreshed_ = false;
};

}  // namespace mesh
