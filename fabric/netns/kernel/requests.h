// The netlink requests that a fabric is made with.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/netns/kernel/netlink.h"
#include "fabric/topology/graph.h"

namespace plugfest::netns {

using MacAddress = std::array<std::uint8_t, 6>;

/// The Ethernet address of the interface with an IPv4 address: 02:00 and the four bytes of that, so that it is the same
/// in every run, and neighbours can be told it beforehand.
MacAddress mac_of(topology::Ipv4Address address);

/// One end of a veth pair.
struct VethEnd {
  int namespace_fd = -1;  ///< network namespace that it is created in
  int index = 0;          ///< number that it shall have there
  std::string name;
  std::optional<MacAddress> mac = std::nullopt;  ///< one of the kernel's choice if absent
};

/// A veth pair, each end at once in its namespace. Both are down: an end that is up before its peer exists is refused.
Request veth_request(const VethEnd& a, const VethEnd& b, int mtu_bytes, std::string purpose);

/// A bridge without spanning tree, in the namespace of the socket.
Request bridge_request(int index, const std::string& name, int mtu_bytes, std::string purpose);

/// Sets an interface up or down.
Request up_request(int index, bool up, std::string purpose);

/// Removes an interface, and with one end of a veth pair the other.
Request delete_request(int index, std::string purpose);

/// Makes an interface a port of a bridge, and sets it up.
Request port_request(int index, int bridge_index, std::string purpose);

/// Sets the largest IP packet of an interface.
Request mtu_request(int index, int mtu_bytes, std::string purpose);

Request address_request(int index, topology::Ipv4Address address, int prefix_length, std::string purpose);

/// Takes an address away; with an interface's last one go all routes over it.
Request remove_address_request(int index, topology::Ipv4Address address, int prefix_length, std::string purpose);

/// Tells a namespace the Ethernet address of a neighbour for good; it is mac_of() the neighbour's address.
Request neighbour_request(int index, topology::Ipv4Address neighbour, std::string purpose);

/// A gateway, and the interface that leads to it.
struct NextHop {
  int index = 0;
  topology::Ipv4Address gateway;
};

constexpr std::uint32_t kMainTable = 254;

/// A route over all of `hops` alike, in place of any to the same subnet. They must not be empty.
Request route_request(const topology::Subnet& to, const std::vector<NextHop>& hops, std::uint32_t table,
                      std::string purpose);

/// Has packets that carry `source` looked up in `table` first.
Request source_rule_request(topology::Ipv4Address source, std::uint32_t table, std::string purpose);

/// Limits what an interface sends, by a token bucket that lets through about a millisecond's worth at once. What waits
/// for tokens is kept, not dropped, up to 20 ms' worth or 4 MiB.
Request rate_request(int index, std::uint64_t bits_per_second, int mtu_bytes, std::string purpose);

}  // namespace plugfest::netns
