#include "fabric/reduction/control.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "fabric/system/clock.h"

namespace plugfest::reduction {
namespace {

constexpr std::size_t kMaxUnsentBytes = 16u << 20;  // bytes for a peer that does not read
constexpr std::size_t kMaxConnections = 20000;
constexpr int kAcceptPauseMs = 100;  // before another attempt to accept, if no descriptor is left

constexpr ConnectionId kListener = 0;  // identifies the listener, which is not a connection

struct Connection {
  Descriptor socket;
  LineReader lines;
  std::string unsent = {};
  bool is_local = false;
  bool closes = false;  // when all is sent
};

// Whether both ends of a connection have the same address, so that the peer is in this network namespace.
bool is_local(int socket) {
  sockaddr_in own = {};
  sockaddr_in peer = {};
  socklen_t own_size = sizeof(own);
  socklen_t peer_size = sizeof(peer);
  return getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         own.sin_addr.s_addr == peer.sin_addr.s_addr;
}

class Server {
 public:
  Server(Manager& manager, Descriptor listener)
      : manager_(manager), listener_(std::move(listener)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw_errno("create an epoll descriptor");
    watch(EPOLL_CTL_ADD, listener_.get(), kListener, EPOLLIN);
  }

  [[noreturn]] void run() {
    while (true) {
      std::array<epoll_event, 64> events;
      const int timeout = accepts_from_ns_ == 0 ? -1 : kAcceptPauseMs;
      const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
      if (count < 0 && errno != EINTR) throw_errno("wait for connections");
      if (accepts_from_ns_ != 0 && now_ns() >= accepts_from_ns_) {
        accepts_from_ns_ = 0;
        watch(EPOLL_CTL_MOD, listener_.get(), kListener, EPOLLIN);
      }
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.u64 == kListener)
          accept_one();
        else
          serve_connection(event.data.u64, event.events);
        end_lost();
      }
    }
  }

 private:
  void watch(int operation, int fd, ConnectionId id, std::uint32_t wanted) {
    epoll_event event = {};
    event.events = wanted;
    event.data.u64 = id;
    if (epoll_ctl(epoll_.get(), operation, fd, &event) != 0) throw_errno("watch a connection");
  }

  void accept_one() {
    Connection connection;
    connection.socket = Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.socket) {
      // The listener stays readable, so without a pause the loop would use a whole processor.
      if (!must_pause_accepting(errno)) return;
      accepts_from_ns_ = now_ns() + kAcceptPauseMs * Nanoseconds{1'000'000};
      return watch(EPOLL_CTL_MOD, listener_.get(), kListener, 0);
    }
    if (connections_.size() >= kMaxConnections) return;
    watch_peer(connection.socket.get());
    connection.is_local = is_local(connection.socket.get());
    const ConnectionId id = ++last_;
    try {
      watch(EPOLL_CTL_ADD, connection.socket.get(), id, EPOLLIN);
    } catch (const std::runtime_error&) {
      return;  // only this connection is lost
    }
    connections_.emplace(id, std::move(connection));
  }

  void serve_connection(ConnectionId id, std::uint32_t events) {
    const auto entry = connections_.find(id);
    if (entry == connections_.end()) return;
    Connection& connection = entry->second;
    if ((events & EPOLLOUT) != 0) flush(id, connection);
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    std::array<char, 16384> buffer;
    const ssize_t bytes = recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (bytes <= 0) return lost_.push_back(id);
    if (connection.closes) return;  // what follows an error has no meaning
    if (!connection.lines.add({buffer.data(), static_cast<std::size_t>(bytes)})) {
      send({{id, {{"type", "error"}, {"reason", "a line has more than 65536 bytes"}}, true}});
      return;
    }
    while (!connection.closes) {
      const std::optional<std::string> line = connection.lines.next();
      if (!line) break;
      send(manager_.receive(id, *line, connection.is_local));
    }
  }

  void send(const std::vector<Outgoing>& messages) {
    for (const Outgoing& outgoing : messages) {
      const auto entry = connections_.find(outgoing.to);
      if (entry == connections_.end() || entry->second.closes) continue;
      Connection& connection = entry->second;
      connection.unsent += outgoing.message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
      connection.closes = outgoing.closes;
      flush(outgoing.to, connection);
    }
  }

  // Sends as much as the socket takes.
  void flush(ConnectionId id, Connection& connection) {
    std::size_t sent = 0;
    while (sent < connection.unsent.size()) {
      const ssize_t bytes = ::send(connection.socket.get(), connection.unsent.data() + sent,
                                   connection.unsent.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0 && errno == EAGAIN) break;
      if (bytes < 0) return lost_.push_back(id);
      sent += static_cast<std::size_t>(bytes);
    }
    connection.unsent.erase(0, sent);
    const bool is_done = connection.unsent.empty() && connection.closes;
    if (is_done || connection.unsent.size() > kMaxUnsentBytes) return lost_.push_back(id);
    watch(EPOLL_CTL_MOD, connection.socket.get(), id, connection.unsent.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
  }

  // Ends the lost connections. The end of a connection can cause messages to others, whose connections may then also be
  // lost.
  void end_lost() {
    while (!lost_.empty()) {
      const ConnectionId id = lost_.front();
      lost_.pop_front();
      if (connections_.erase(id) > 0) send(manager_.closed(id));
    }
  }

  Manager& manager_;
  Descriptor listener_;
  Descriptor epoll_;
  std::map<ConnectionId, Connection> connections_;
  std::deque<ConnectionId> lost_;
  ConnectionId last_ = 0;
  Nanoseconds accepts_from_ns_ = 0;  // when the listener is watched again; 0: it is watched
};

}  // namespace

void serve(Manager& manager, Descriptor listener) { Server(manager, std::move(listener)).run(); }

}  // namespace plugfest::reduction
