// Accepts the connections of other connection managers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "fabric/rdma_cm/message.h"
#include "fabric/rdma_cm/poller.h"
#include "fabric/rdma_cm/ports.h"
#include "fabric/rdma_cm/stream.h"

namespace plugfest::rdma_cm {

/// Listens on kManagerPort of the local addresses, together with the other processes of the host, and passes each
/// request to the process that has bound its port. Guarded by the manager's lock, which is held when the callback runs.
class Acceptor {
 public:
  /// `requested`: called with each request for a port of this process. It returns false if no identifier listens there;
  /// then the acceptor rejects the request.
  using Requested = std::function<bool(const Port& port, const Message& request, Descriptor& connection)>;

  Acceptor(Poller& poller, Requested requested) : poller_(poller), requested_(std::move(requested)) {}

  /// Accepts connections to `address` from now on. Errors: std::system_error.
  void listen(const Address& address);
  /// Accepts the connections that other processes pass for `port`, which must be removed from the poller before it is
  /// destroyed. Errors: std::system_error.
  void listen(const BoundPort& port);

 private:
  void accept(int listener);
  void resume();
  void greet(std::uint64_t number, const Message& message);

  Poller& poller_;
  Requested requested_;
  std::map<std::array<std::uint8_t, 16>, Descriptor> listeners_;
  /// Connections without a request, by the order of their arrival.
  std::map<std::uint64_t, std::unique_ptr<Stream>> arrivals_;
  std::uint64_t next_arrival_ = 0;
  std::optional<Timer> resume_;  ///< ends the pause of all listeners; exists before the first listener
};

/// Sends the rejection of a request.
void reject(int connection, const Message& request, RejectReason reason);

}  // namespace plugfest::rdma_cm
