// All sockets are non-blocking and close-on-exec, and sending raises no SIGPIPE.
#include "plugins/mesh/handshake/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugins/mesh/log.h"

namespace mesh {
namespace {

constexpr int kBacklog = 4096;
// Retransmissions of a SYN before connect fails: after 1 + 2 + 4 + 8 s.
constexpr int kSynRetries = 3;
// An idle connection is probed after 5 s and every 5 s, and ends after five probes without an answer. The kernel
// answers for a stopped process, so the probes detect only a dead host or link.
constexpr int kKeepAliveIdle = 5;
constexpr int kKeepAliveInterval = 5;
constexpr int kKeepAliveProbes = 5;
constexpr unsigned kUserTimeoutMs = 30000;

void set(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

Socket tcp_socket(const Address& address) {
  Socket socket(::socket(address.is_ipv4() ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) throw system_failure("create a TCP socket");
  return socket;
}

SocketAddress own_address(const Socket& socket) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (getsockname(socket.fd(), address.get(), &address.size) != 0)
    throw system_failure("read the address of a connection");
  return address;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

std::optional<Socket> listen_on(const Address& address, std::uint16_t port) {
  Socket socket = tcp_socket(address);
  if (!address.is_ipv4()) set(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  const SocketAddress local(address, port);
  if (bind(socket.fd(), local.get(), local.size) != 0 || listen(socket.fd(), kBacklog) != 0) {
    if (errno == EADDRINUSE && port != 0) return std::nullopt;
    throw system_failure("listen on " + to_string(address));
  }
  return socket;
}

std::uint16_t port_of(const Socket& socket) { return own_address(socket).port(); }

Socket begin_connect(const std::optional<Address>& local, const Address& peer, std::uint16_t port) {
  Socket socket = tcp_socket(peer);
  set(socket.fd(), IPPROTO_TCP, TCP_SYNCNT, kSynRetries);
  if (local) {
    // Without a bound port the kernel can share source ports between connections to different peers.
    set(socket.fd(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    const SocketAddress from(*local, 0);
    if (bind(socket.fd(), from.get(), from.size) != 0) throw system_failure("connect from " + to_string(*local));
  }
  const SocketAddress to(peer, port);
  if (connect(socket.fd(), to.get(), to.size) != 0 && errno != EINPROGRESS && errno != EINTR)
    throw system_failure("connect to " + to_string(peer) + " port " + std::to_string(port));
  return socket;
}

std::optional<int> connect_result(const Socket& socket) {
  pollfd poll = {.fd = socket.fd(), .events = POLLOUT, .revents = 0};
  if (::poll(&poll, 1, 0) <= 0) return std::nullopt;
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

Address local_address(const Socket& socket) { return from_sockaddr(own_address(socket).get()).value_or(Address{}); }

void detect_lost_peer(const Socket& socket) {
  const int fd = socket.fd();
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdle);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveInterval);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(kUserTimeoutMs));
}

PeerLink::PeerLink(Socket socket) : socket_(std::move(socket)) { detect_lost_peer(socket_); }

std::pair<Socket, std::vector<std::uint8_t>> PeerLink::release() {
  return {std::exchange(socket_, Socket()), parser_.take_rest()};
}

bool PeerLink::send(const Message& message) {
  if (ended_) return false;
  const std::vector<std::uint8_t> bytes = encode(message);
  ssize_t sent;
  do {
    sent = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  // An error does not end the link: messages that arrived before are still to be read.
  return sent == static_cast<ssize_t>(bytes.size());
}

std::optional<Message> PeerLink::receive() {
  while (true) {
    if (std::optional<Message> message = parser_.next()) return message;
    if (ended_) return std::nullopt;
    std::uint8_t bytes[4096];
    const ssize_t count = ::recv(socket_.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0) {
      parser_.feed(std::span(bytes, static_cast<std::size_t>(count)));
    } else if (count == 0) {
      end("it closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return std::nullopt;
    } else if (errno != EINTR) {
      unreachable_ = errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ENETDOWN;
      end(error_text(errno));
    }
  }
}

void PeerLink::finish() {
  if (socket_) shutdown(socket_.fd(), SHUT_WR);
}

void PeerLink::end(const std::string& reason) {
  ended_ = true;
  end_reason_ = reason;
}

}  // namespace mesh
