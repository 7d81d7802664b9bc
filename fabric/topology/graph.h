// A topology as plain data: hosts, switches, links, addresses.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest::topology {

/// An IPv4 address. `value` is in host byte order: 10.0.0.1 is 0x0a000001.
struct Ipv4Address {
  std::uint32_t value = 0;

  /// "192.168.100.1"
  std::string text() const;
  auto operator<=>(const Ipv4Address&) const = default;
};

/// The subnet of a link, or of a bridge and all its links.
struct Subnet {
  Ipv4Address network;
  int prefix_length = 0;  ///< 0 to 32

  /// "192.168.100.0/24"
  std::string text() const;
  bool contains(Ipv4Address address) const;
  auto operator<=>(const Subnet&) const = default;
};

/// Reserved for the out-of-band network of a fabric. No link may use it.
inline constexpr Subnet kOutOfBandSubnet = {{10u << 24 | 255u << 16}, 16};

/// A network interface of a host or switch.
struct Interface {
  std::string name;       ///< eth0, eth1, … in the order of the node's links
  Ipv4Address address;    ///< 0.0.0.0 for a port of a bridge
  int prefix_length = 0;  ///< prefix length of the link's subnet
  int mtu_bytes = 0;      ///< maximum size of an IP packet
  std::size_t link = 0;   ///< index in Graph::links
};

/// A host. A built graph has a network namespace and a mount namespace for each. NICs are on its interfaces.
struct Host {
  std::string name;
  std::vector<Interface> interfaces;
};

enum class SwitchKind {
  kBridge,  ///< one subnet through all ports
  kRouter,  ///< a subnet per port; equal-cost routes are selected by a hash over addresses and ports
};

/// A forwarding node without NICs.
struct Switch {
  std::string name;
  SwitchKind kind = SwitchKind::kBridge;
  int tier = 1;  ///< 1: next to the hosts; used for drawing and for default routes
  std::vector<Interface> interfaces;
};

/// One end of a link: an interface of a node.
struct LinkEnd {
  enum class Node { kHost, kSwitch };
  Node node = Node::kHost;
  std::size_t index = 0;      ///< index in Graph::hosts or Graph::switches
  std::size_t interface = 0;  ///< index in that node's interfaces
  auto operator<=>(const LinkEnd&) const = default;
};

struct Link {
  std::array<LinkEnd, 2> ends;
  Subnet subnet;
  int mtu_bytes = 9000;
  std::uint64_t rate_bits_per_second = 0;  ///< 0: no limit
  std::uint32_t delay_us = 0;              ///< one way; implemented by NICs, so 0 between switches
};

struct HostInterface {
  std::size_t host = 0;
  std::size_t interface = 0;
  auto operator<=>(const HostInterface&) const = default;
};

/// Two interfaces of different hosts that can reach each other.
struct Path {
  HostInterface from;
  HostInterface to;
};

struct Graph {
  std::string name;  ///< the specification, such as "triangle"
  std::vector<Host> hosts;
  std::vector<Switch> switches;
  std::vector<Link> links;

  /// "3 hosts, 0 switches, 3 links"
  std::string size_text() const;

  /// The host with a name, or its index. Errors: std::runtime_error that lists the hosts.
  const Host& host(std::string_view name) const;
  std::size_t host_index(std::string_view name) const;

  /// Whether a host or switch has this name.
  bool has_node(std::string_view name) const;

  const Interface& interface(const HostInterface& end) const;
  const Interface& interface(const LinkEnd& end) const;
  /// The name of the host or switch at the end of a link.
  const std::string& node_name(const LinkEnd& end) const;
  /// The end of a link at an interface of a host or switch; null if the interface does not exist.
  const LinkEnd* find_link_end(std::string_view node, std::string_view interface) const;
  /// The other end of the same link.
  const LinkEnd& opposite(const LinkEnd& end) const;
  /// The full name of a host's interface, "a.eth0". A rank on the interface has the same name.
  std::string interface_name(const HostInterface& end) const;

  /// All pairs of interfaces of different hosts that can reach each other: the ends of a link between hosts, or two
  /// interfaces on the same connected switches. `from` is less than `to`; sorted by `from`, then `to`. The triangle has
  /// three paths.
  std::vector<Path> paths() const;
};

/// Creates a topology from its specification: a name with its numbers and link parameters ("triangle", "ring:4",
/// "fat-tree:4,rate=10Gbit,mtu=1500,delay=5us"), or the path of a file that ends in .yaml or .yml (see file.h).
/// Errors: std::runtime_error, one line with the reason; for an unknown name with the list of topologies.
Graph named(std::string_view specification);

/// The topology name that equals `word`, or differs from it by at most a quarter of the letters: "fat-tree" for
/// "fat-tre". Otherwise "".
std::string nearest_name(std::string_view word);

}  // namespace plugfest::topology
