// The listener's side of the handshake. All listeners of a process share one TCP port.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/transfer/recv_comm.h"

namespace mesh {

/// The result of listen; NCCL's listenComm points to it.
struct Listener {
  Secret secret;
  ListenerId id = {};
  std::set<Nonce> used_nonces;       ///< nonces of peers that proved that they know the secret
  std::vector<std::size_t> devices;  ///< indexes of the NICs of the device that NCCL asked for
  Transport transport;
  bool refuses = false;  ///< see Listeners::refuse

  /// A finished handshake: a comm, or a failure on this side.
  struct Outcome {
    std::unique_ptr<RecvComm> comm;
    std::optional<Failure> failure;
  };
  std::deque<Outcome> outcomes;
};

/// Accepts TCP connections on every address of the NICs and runs the listener's side of the handshake with any number
/// of peers at once. No function waits; `accept` makes progress. A connection whose first message does not prove
/// a listener's secret is closed before memory is allocated for it. A silent connection keeps one file
/// descriptor, and is closed after 10 s if 64 or more handshakes are unfinished. When a listener is added, the acceptor
/// follows address changes of the NICs. The destructor logs how many connections were dropped, and why. Not
/// thread-safe.
class Acceptor {
 public:
  /// Opens the port. Errors: Failure.
  explicit Acceptor(DeviceList devices);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Adds a listener. `handle_of` returns the content of its handle.
  Listener& add(std::vector<std::size_t> devices, const Transport& transport);
  Handle handle_of(const Listener& listener) const;
  /// Closes the listener's connections that were not accepted, and refuses further ones.
  void refuse(Listener& listener);
  /// Refuses connections and removes the listener.
  void remove(Listener& listener);
  /// Whether `listener` points to a listener of this object.
  bool has(const void* listener) const;
  bool empty() const { return listeners_.empty(); }

  /// The next connection of a listener, or null if there is none yet. Errors: Failure if a connection failed on this
  /// side.
  std::unique_ptr<RecvComm> accept(Listener& listener);

 private:
  struct Incoming {
    PeerLink link;
    std::int64_t since_ms = 0;
    Nonce nonce = {};                ///< nonce of the peer's Hello
    Listener* listener = nullptr;    ///< null until the peer's Hello
    std::unique_ptr<RecvComm> comm;  ///< null until the peer's Hello
  };

  void open_port();
  bool listen_on_all_addresses();
  void follow_addresses();
  void watch(int fd, std::uint64_t id);
  void progress();
  void take_connections(const Socket& socket);
  void drop_silent();
  bool advance(Incoming& incoming);
  bool handle_message(Incoming& incoming, const Message& message);
  bool handle_hello(Incoming& incoming, const Hello& hello);
  template <typename Proven>
  Listener* listener_for(const Proven& message);
  std::vector<PeerAddress> addresses_for(const Listener& listener) const;

  /// Numbers of connections that were closed because of their peer, by reason.
  struct Dropped {
    std::size_t unknown = 0;
    std::size_t forged = 0;
    std::size_t repeated = 0;
    std::size_t malformed = 0;
    std::size_t silent = 0;
  };
  /// A TCP socket that listens on one address of a NIC.
  struct ListeningSocket {
    NetworkAddress network;
    std::size_t device = 0;
    Socket socket;  ///< closed if the NIC has lost the address
  };

  DeviceList devices_;
  std::vector<ListeningSocket> listening_;  ///< never shrinks: the index is the id in the epoll set
  std::uint16_t port_ = 0;
  Socket events_;
  std::map<ListenerId, std::unique_ptr<Listener>> listeners_;
  std::map<std::uint64_t, Incoming> incoming_;
  std::uint64_t next_id_ = 0;
  Dropped dropped_;
};

/// The listeners of the process. Their port is closed when the last one is removed. Thread-safe.
class Listeners {
 public:
  /// Adds a listener for the NICs `nics`, indexes in `devices`, and writes its handle. Errors: Failure.
  Listener& add(DeviceList devices, std::vector<std::size_t> nics, const Transport& transport, Handle& handle);
  /// The NICs of the device that listen was called for. Errors: Failure (kInvalidArgument) for an unknown pointer.
  std::vector<std::size_t> nics_of(void* listener);
  /// Calls `Acceptor::accept`. Errors: its errors, and Failure (kInvalidArgument) for an unknown pointer.
  std::unique_ptr<RecvComm> accept(void* listener);
  /// The listener accepts no more connections; it can still be removed. Calls `accept` once, so that peers whose Hello
  /// has arrived get the refusal; others get it when this process next accepts. Errors: those of `accept`.
  void refuse(void* listener);
  /// Calls `Acceptor::remove`. Errors: Failure (kInvalidArgument) for an unknown pointer.
  void remove(void* listener);
  void clear();

 private:
  Listener& find(void* listener, const char* function);

  std::mutex mutex_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace mesh
