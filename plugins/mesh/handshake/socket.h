// TCP sockets that never block, and the stream of messages over one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/mesh/handshake/message.h"

namespace mesh {

/// Owns a descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Listens at one address; port 0: any free one. Errors: Failure; nothing if exactly this port is taken.
std::optional<Socket> listen_at(const Address& address, std::uint16_t port);
std::uint16_t port_of(const Socket& socket);

/// Begins to connect. `local`: the address to connect from, or nothing for the kernel's choice. Errors: Failure.
Socket begin_connect(const std::optional<Address>& local, const Address& peer, std::uint16_t port);

/// How a connect that has begun stands: still under way (nothing), or ended with this error number (0: connected).
std::optional<int> connect_result(const Socket& socket);

/// The address that a connected socket has here, or there.
Address local_address(const Socket& socket);
Address peer_address(const Socket& socket);

/// A connected socket as messages. Not thread safe.
class PeerLink {
 public:
  PeerLink() = default;
  /// Sets the socket up so that a peer whose host or cable is gone is noticed within half a minute, idle or not.
  explicit PeerLink(Socket socket);

  /// Sends a message, which fits into the socket's buffer as long as the peer reads what it gets. False: it cannot be
  /// sent, the peer is gone.
  bool send(const Message& message);

  /// The next message that has arrived, or nothing. Errors: Failure if it is malformed.
  std::optional<Message> receive();

  /// Whether the peer has closed the connection, or it broke. What arrived before has been read then.
  bool ended() const { return ended_; }
  /// Why: "it closed the connection", "connection reset by peer".
  const std::string& end_reason() const { return end_reason_; }

  /// Tells the peer that nothing more comes.
  void finish();

  const Socket& socket() const { return socket_; }

 private:
  void end(const std::string& reason);

  Socket socket_;
  MessageParser parser_;
  bool ended_ = false;
  std::string end_reason_;
};

}  // namespace mesh
