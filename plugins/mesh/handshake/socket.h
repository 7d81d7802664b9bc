// Non-blocking TCP sockets, and messages over a socket.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plugins/mesh/handshake/message.h"

namespace mesh {

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

/// Listens on one address. `port` 0: any free port. Returns nullopt if `port` is taken. Other errors: Failure.
std::optional<Socket> listen_on(const Address& address, std::uint16_t port);
std::uint16_t port_of(const Socket& socket);

/// Starts to connect. `local`: the source address; nullopt: the kernel chooses. Errors: Failure.
Socket begin_connect(const std::optional<Address>& local, const Address& peer, std::uint16_t port);

/// The result of a connect: nullopt while it is in progress, 0 if the socket is connected, else an error number.
std::optional<int> connect_result(const Socket& socket);

/// The own address of a connected socket.
Address local_address(const Socket& socket);

/// Sets TCP options that detect an unreachable peer within 30 s, even on an idle connection, and that send immediately.
void detect_lost_peer(const Socket& socket);

/// Sends and receives messages over a connected socket. Not thread-safe.
class PeerLink {
 public:
  PeerLink() = default;
  /// Calls `detect_lost_peer`.
  explicit PeerLink(Socket socket);

  /// Sends a message. Returns false if the connection has ended or the socket's buffer is full.
  bool send(const Message& message);

  /// The next message that has arrived, or nullopt. Errors: Failure if it is invalid.
  std::optional<Message> receive();

  /// Whether the connection has ended and `receive` has returned all messages that arrived before.
  bool ended() const { return ended_; }
  /// Why it ended: "it closed the connection", "Connection reset by peer".
  const std::string& end_reason() const { return end_reason_; }

  /// Whether it ended because packets no longer reached the peer.
  bool unreachable() const { return unreachable_; }

  /// Shuts down the sending direction.
  void finish();

  const Socket& socket() const { return socket_; }
  /// Returns the socket, and the received bytes that are not a complete message yet.
  std::pair<Socket, std::vector<std::uint8_t>> release();

 private:
  void end(const std::string& reason);

  Socket socket_;
  MessageParser parser_;
  bool ended_ = false;
  std::string end_reason_;
  bool unreachable_ = false;
};

}  // namespace mesh
