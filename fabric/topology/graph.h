// A topology as plain data: hosts and switches, the links between them, and the addresses on the links.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plugfest::topology {

/// An IPv4 address. `value` is in host byte order, so that 10.0.0.1 is 0x0a000001 everywhere.
struct Ipv4Address {
  std::uint32_t value = 0;

  /// "192.168.100.1"
  std::string text() const;
  auto operator<=>(const Ipv4Address&) const = default;
};

/// The addresses that one link, or one bridge with all its links, takes.
struct Subnet {
  Ipv4Address network;
  int prefix_length = 0;  ///< 0 to 32

  /// "192.168.100.0/24"
  std::string text() const;
  bool contains(Ipv4Address address) const;
  auto operator<=>(const Subnet&) const = default;
};

/// What the out-of-band network of a fabric takes; no link may.
inline constexpr Subnet kOutOfBandSubnet = {{10u << 24 | 255u << 16}, 16};

/// One end of a link as its host or switch has it.
struct Interface {
  std::string name;       ///< eth0, eth1, … in the order of the node's links
  Ipv4Address address;    ///< 0.0.0.0 on a port of a bridge, which has none
  int prefix_length = 0;  ///< of the link's subnet
  int mtu_bytes = 0;      ///< largest IP packet
  std::size_t link = 0;   ///< index in Graph::links
};

/// A machine: a network namespace and a mount namespace once the graph is built. Its interfaces carry the NICs.
struct Host {
  std::string name;
  std::vector<Interface> interfaces;
};

enum class SwitchKind {
  kBridge,  ///< one subnet through all ports
  kRouter,  ///< a subnet per port, equal-cost routes chosen by a hash over addresses and ports
};

/// A forwarding node without NICs.
struct Switch {
  std::string name;
  SwitchKind kind = SwitchKind::kBridge;
  int tier = 1;  ///< 1 next to the hosts, more further up; for drawing and for the routes
  std::vector<Interface> interfaces;
};

/// Which interface of which node a link ends at.
struct LinkEnd {
  enum class Node { kHost, kSwitch };
  Node node = Node::kHost;
  std::size_t index = 0;      ///< in Graph::hosts or Graph::switches
  std::size_t interface = 0;  ///< in that node's interfaces
  auto operator<=>(const LinkEnd&) const = default;
};

struct Link {
  std::array<LinkEnd, 2> ends;
  Subnet subnet;
  int mtu_bytes = 9000;
  std::uint64_t rate_bits_per_second = 0;  ///< 0: no limit
  std::uint32_t delay_us = 0;              ///< one way; a NIC makes it, so between switches it is 0
};

/// An interface of a host, by index.
struct HostInterface {
  std::size_t host = 0;
  std::size_t interface = 0;
  auto operator<=>(const HostInterface&) const = default;
};

/// Two interfaces that reach each other over the network they share.
struct Path {
  HostInterface from;
  HostInterface to;
};

struct Graph {
  std::string name;  ///< the specification it was made from: "triangle"
  std::vector<Host> hosts;
  std::vector<Switch> switches;
  std::vector<Link> links;

  /// The host called `name`, or its index. Errors: std::runtime_error that names the hosts there are.
  const Host& host(std::string_view name) const;
  std::size_t host_index(std::string_view name) const;

  /// Whether a host or switch has that name.
  bool has_node(std::string_view name) const;

  const Interface& interface(const HostInterface& end) const;
  const Interface& interface(const LinkEnd& end) const;
  /// Name of the host or switch at the end of a link.
  const std::string& node_name(const LinkEnd& end) const;
  /// The end of a link at an interface of a host or switch, null if there is none, and the other end of its link.
  const LinkEnd* find_link_end(std::string_view node, std::string_view interface) const;
  const LinkEnd& opposite(const LinkEnd& end) const;
  /// "a.eth0": what an interface of a host, and a rank on it, is called everywhere.
  std::string interface_name(const HostInterface& end) const;

  /// Every pair of interfaces of two different hosts that reach each other: the two ends of a link between hosts, or
  /// any two that hang on the same connected switches. Ordered by `from`, then `to`; `from` is the lesser. On the
  /// triangle: three paths.
  std::vector<Path> paths() const;
};

/// Makes a topology from its specification: a name with its numbers and what its links are like ("triangle", "ring:4",
/// "fat-tree:4,rate=10Gbit,mtu=1500,delay=5us"), or the path of a file that ends in .yaml or .yml (see file.h).
/// Errors: std::runtime_error, one line with what is wrong and which topologies there are.
Graph named(std::string_view specification);

/// Whether there is a shape of that name: "fat-tree".
bool is_named(std::string_view shape);

}  // namespace plugfest::topology
