// Requests to the kernel's routing netlink, many per system call.
#pragma once

#include <netlink/msg.h>
#include <netlink/netlink.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/topology/graph.h"

namespace plugfest::netns {

/// A request in the making, with what it is for in words an error can use ("link a-b 192.168.100.0/24").
struct Request {
  std::unique_ptr<nl_msg, decltype(&nlmsg_free)> message;
  std::string purpose;
};

/// One end of a veth pair.
struct VethEnd {
  int namespace_fd = -1;  ///< network namespace that it is created in
  int index = 0;          ///< number that it shall have there
  std::string name;
};

/// A veth pair, each end at once in its namespace. Both are down: an end that is up before its peer exists is refused.
Request veth_request(const VethEnd& a, const VethEnd& b, int mtu_bytes, std::string purpose);

/// A bridge without spanning tree, in the namespace of the socket.
Request bridge_request(int index, const std::string& name, int mtu_bytes, std::string purpose);

/// Sets an interface up or down.
Request up_request(int index, bool up, std::string purpose);

/// Makes an interface a port of a bridge, and sets it up.
Request port_request(int index, int bridge_index, std::string purpose);

Request address_request(int index, topology::Ipv4Address address, int prefix_length, std::string purpose);

/// A socket in the network namespace that the calling thread is in at construction; it stays there.
class Netlink {
 public:
  /// Errors: std::runtime_error.
  Netlink();

  /// Queues a request. Sends what is queued when that is a batch. Errors: as flush().
  void add(Request request);

  /// Sends what is queued and waits for the answers. Errors: std::runtime_error with the purpose of the first request
  /// that the kernel refused, and its reason; the requests after it may have been carried out.
  void flush();

 private:
  std::unique_ptr<nl_sock, decltype(&nl_socket_free)> socket_;
  std::vector<Request> queue_;
};

/// The number of the interface called `name` in the calling thread's network namespace; 0 if there is none.
int interface_index(const std::string& name);

}  // namespace plugfest::netns
