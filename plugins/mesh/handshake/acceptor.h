// The listening side: all listeners of the process share one TCP port, and the nonce in the handle tells them apart.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/transfer/recv_comm.h"

namespace mesh {

/// What listen makes; NCCL's listenComm points to it.
struct Listener {
  Nonce nonce = {};
  std::size_t device = 0;
  Transport transport;

  /// Connections whose handshake is over, and those that failed on this side.
  struct Outcome {
    std::unique_ptr<RecvComm> comm;
    std::optional<Failure> failure;
  };
  std::deque<Outcome> outcomes;
};

/// Takes TCP connections at every address of the NICs and carries out the listener's part of the handshake, for any
/// number of peers at once. Nothing here waits: progress happens in accept. Whoever connects without knowing a nonce is
/// sent away; whoever connects and says nothing costs one descriptor, for as long as few do.
/// Not thread safe.
class Acceptor {
 public:
  /// Opens the port. Errors: Failure.
  explicit Acceptor(DeviceList devices);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// A new listener and what its handle is to say.
  Listener& add(std::size_t device, const Transport& transport);
  Handle handle_of(const Listener& listener) const;
  /// Ends one, with the connections that were not accepted from it.
  void remove(const Listener& listener);
  /// Whether this is one of them.
  bool has(const void* listener) const;
  bool empty() const { return listeners_.empty(); }

  /// The next connection of a listener, or nothing yet. Errors: Failure, if a peer's connection failed on this side.
  std::unique_ptr<RecvComm> accept(Listener& listener);

 private:
  struct Incoming {
    PeerLink link;
    std::int64_t since_ms = 0;
    Listener* listener = nullptr;    ///< once the peer has said whom it wants
    std::unique_ptr<RecvComm> comm;  ///< from then on
  };
  using Arrivals = std::map<std::uint64_t, Incoming>;

  void open_port();
  bool listen_everywhere();
  void watch(int fd, std::uint64_t id);
  void progress();
  void take_connections(const Socket& socket);
  void drop_silent();
  bool advance(Incoming& incoming);
  bool answer(Incoming& incoming, const Message& message);
  bool welcome(Incoming& incoming, const Hello& hello);
  Listener* find(const Nonce& nonce);
  std::vector<PeerAddress> addresses_for(const Listener& listener) const;

  DeviceList devices_;
  std::vector<PeerAddress> addresses_;  ///< those that are listened at
  std::vector<std::size_t> device_of_address_;
  std::vector<Socket> sockets_;
  std::uint16_t port_ = 0;
  Socket events_;
  std::map<Nonce, std::unique_ptr<Listener>> listeners_;
  Arrivals incoming_;
  std::uint64_t next_id_ = 0;
};

}  // namespace mesh
