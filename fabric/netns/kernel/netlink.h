// Batches of requests to the kernel's routing netlink (rtnetlink).
#pragma once

#include <netlink/msg.h>
#include <netlink/netlink.h>

#include <memory>
#include <string>
#include <vector>

namespace plugfest::netns {

/// A request that is being built. Errors begin with `purpose`, such as "link a-b 192.168.100.0/24".
struct Request {
  std::unique_ptr<nl_msg, decltype(&nlmsg_free)> message;
  std::string purpose;
};

/// A netlink socket. It belongs to the network namespace of the thread that constructs it.
class Netlink {
 public:
  /// Errors: std::runtime_error.
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

}  // namespace plugfest::netns
