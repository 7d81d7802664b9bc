// The names of hosts, for /etc/hosts, and their out-of-band addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fabric/topology/graph.h"

namespace plugfest::topology {

/// The address of the host with this index in kOutOfBandSubnet.
inline Ipv4Address out_of_band_address(std::size_t host) {
  return {kOutOfBandSubnet.network.value + 1 + static_cast<std::uint32_t>(host)};
}

/// Thread safety: const functions from any thread.
class HostNames {
 public:
  /// `out_of_band`: hosts also have addresses of kOutOfBandSubnet, in the order of their indices. `graph` must outlive
  /// the object.
  HostNames(const Graph& graph, bool out_of_band);

  /// Lines such as "192.168.100.2 b" with the addresses of all hosts, as `host` sees them. A resolver takes the first
  /// line of a name: the host's own name has the address of its first interface; the name of another host has its
  /// out-of-band address, else one in a subnet of `host`, else the address of its first interface.
  std::string seen_by(const Host& host) const;

 private:
  struct Member {
    const Host* host;
    const Interface* interface;
  };
  std::map<Subnet, std::vector<Member>> subnets_;
  std::string all_;
  const bool out_of_band_;
};

}  // namespace plugfest::topology
