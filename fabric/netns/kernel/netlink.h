// Requests to the kernel's routing netlink, many per system call.
#pragma once

#include <netlink/msg.h>
#include <netlink/netlink.h>

#include <memory>
#include <string>
#include <vector>

namespace plugfest::netns {

/// A request in the making, with what it is for in words an error can use ("link a-b 192.168.100.0/24").
struct Request {
  std::unique_ptr<nl_msg, decltype(&nlmsg_free)> message;
  std::string purpose;
};

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

}  // namespace plugfest::netns
