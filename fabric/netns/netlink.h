// Requests to the kernel's routing netlink (rtnetlink), in batches: links, addresses, routes and rate limits.
#pragma once

#include <netlink/msg.h>
#include <netlink/netlink.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/topology/graph.h"

namespace plugfest::netns {

/// A request that is being built. Errors begin with `purpose`, such as "link a-b 192.168.100.0/24".
struct Request {
  std::unique_ptr<nl_msg, decltype(&nlmsg_free)> message;
  std::string purpose;
  int accepted_error = 0;  ///< an errno that counts as success
};

/// A netlink socket. It belongs to the network namespace of the thread that constructs it.
class Netlink {
 public:
  Netlink();

  /// Queues a request, and sends the queue when it holds a full batch. Errors: as flush().
  void add(Request request);

  /// Sends all queued requests and waits for the answers. Errors: std::runtime_error with the purpose of the first
  /// request that the kernel refused and the kernel's reason; later requests may have succeeded.
  void flush();

 private:
  std::unique_ptr<nl_sock, decltype(&nl_socket_free)> socket_;
  std::vector<Request> queue_;
};

using MacAddress = std::array<std::uint8_t, 6>;

/// The Ethernet address of the interface that has an IPv4 address: 02:00 and the four bytes of the IPv4 address. It is
/// the same in every run, so neighbor entries can be added before the interface exists.
MacAddress mac_of(topology::Ipv4Address address);

struct VethEnd {
  int namespace_fd = -1;  ///< network namespace of this end
  int index = 0;          ///< interface index in that namespace; 0: chosen by the kernel
  std::string name;
  std::optional<MacAddress> mac = std::nullopt;  ///< absent: chosen by the kernel
};

/// Creates a veth pair, each end in its namespace. Both ends are down: the kernel refuses an end that is up before its
/// peer exists.
Request veth_request(const VethEnd& a, const VethEnd& b, int mtu_bytes, std::string purpose);

/// Creates a bridge without spanning tree in the namespace of the socket.
Request bridge_request(int index, const std::string& name, int mtu_bytes, std::string purpose);

Request up_request(int index, bool up, std::string purpose);

/// Removes an interface. Removing one end of a veth pair removes the other end too.
Request delete_request(int index, std::string purpose);

/// Makes an interface a port of a bridge and sets it up.
Request port_request(int index, int bridge_index, std::string purpose);

Request mtu_request(int index, int mtu_bytes, std::string purpose);

/// Adds an IPv4 address, unless the interface has it.
Request address_request(int index, topology::Ipv4Address address, int prefix_length, std::string purpose);

/// Removes an IPv4 address if the interface has it. Removing an interface's last address also removes all routes over
/// it.
Request remove_address_request(int index, topology::Ipv4Address address, int prefix_length, std::string purpose);

/// Adds a permanent neighbor entry with the Ethernet address mac_of(neighbor).
Request neighbor_request(int index, topology::Ipv4Address neighbor, std::string purpose);

/// Sets how often, and how many times, an interface repeats ARP requests. The interface must exist.
Request arp_request(int index, std::chrono::milliseconds interval, std::uint32_t probes, std::string purpose);

/// A gateway and the interface through which it is reached.
struct NextHop {
  int index = 0;
  topology::Ipv4Address gateway;
};

constexpr std::uint32_t kMainTable = 254;

/// Adds an equal-cost route over all `hops`, and replaces an existing route to the same subnet. `hops` must not be
/// empty.
Request route_request(const topology::Subnet& to, const std::vector<NextHop>& hops, std::uint32_t table,
                      std::string purpose);

/// Makes the kernel look up packets from `source` in `table` first.
Request source_rule_request(topology::Ipv4Address source, std::uint32_t table, std::string purpose);

/// Limits the send rate of an interface with a token bucket filter (tbf). The bucket holds about 1 ms of data, the
/// queue 20 ms of data or 4 MiB, whichever is more.
Request rate_request(int index, std::uint64_t bits_per_second, int mtu_bytes, std::string purpose);

}  // namespace plugfest::netns
