#include "conformance/interfaces/toy_group.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace plugfest::toy {
namespace {

constexpr std::size_t kHandleBytes = 128, kPlaceBytes = 6;

sockaddr_in socket_address(std::uint32_t address, std::uint16_t port) {
  sockaddr_in result = {};
  result.sin_family = AF_INET;
  result.sin_addr.s_addr = address;
  result.sin_port = port;
  return result;
}

Descriptor tcp_socket() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) throw_errno("create a socket");
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

// The first place of a handle that accepts a connection: a rank reaches only some of another rank's addresses.
Descriptor connect_to(const std::vector<std::byte>& handle) {
  const std::size_t places = std::min(static_cast<std::size_t>(handle.at(0)), (kHandleBytes - 1) / kPlaceBytes);
  for (std::size_t i = 0; i < places; ++i) {
    std::uint32_t address;
    std::uint16_t port;
    std::memcpy(&address, &handle.at(1 + i * kPlaceBytes), sizeof address);
    std::memcpy(&port, &handle.at(1 + i * kPlaceBytes) + sizeof address, sizeof port);
    const sockaddr_in there = socket_address(address, port);
    Descriptor socket = tcp_socket();
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0) return socket;
  }
  throw std::runtime_error("a rank cannot be reached");
}

void send_byte(const Descriptor& socket) {
  if (send(socket.get(), "", 1, MSG_NOSIGNAL) != 1) throw std::runtime_error("a peer has ended");
}

void receive_byte(const Descriptor& socket) {
  pollfd waiting = {socket.get(), POLLIN, 0};
  char byte;
  if (poll(&waiting, 1, Listener::kSeconds * 1000) != 1 || recv(socket.get(), &byte, 1, 0) != 1)
    throw std::runtime_error("a rank does not connect");
}

void append_message(std::vector<std::byte>& to, const std::vector<std::byte>& data) {
  const std::uint64_t size = data.size();
  const auto* const first = reinterpret_cast<const std::byte*>(&size);
  to.insert(to.end(), first, first + sizeof size);
  to.insert(to.end(), data.begin(), data.end());
}

}  // namespace

Listener::Listener() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) throw_errno("list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(all, freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    if (places_.size() == (kHandleBytes - 1) / kPlaceBytes) break;
    sockaddr_in here = socket_address(reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr, 0);
    Descriptor socket = tcp_socket();
    socklen_t length = sizeof here;
    if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) != 0 ||
        listen(socket.get(), 64) != 0 || getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &length) != 0)
      throw_errno("listen on a socket");
    places_.push_back({here.sin_addr.s_addr, here.sin_port});
    sockets_.push_back(std::move(socket));
  }
}

std::vector<std::byte> Listener::handle() const {
  std::vector<std::byte> handle(kHandleBytes);
  handle[0] = static_cast<std::byte>(places_.size());
  for (std::size_t i = 0; i < places_.size(); ++i) {
    std::memcpy(&handle[1 + i * kPlaceBytes], &places_[i].address, sizeof places_[i].address);
    std::memcpy(&handle[1 + i * kPlaceBytes] + sizeof places_[i].address, &places_[i].port, sizeof places_[i].port);
  }
  return handle;
}

Descriptor Listener::accept() const {
  std::vector<pollfd> waiting;
  for (const Descriptor& socket : sockets_) waiting.push_back({socket.get(), POLLIN, 0});
  if (poll(waiting.data(), waiting.size(), kSeconds * 1000) <= 0) throw std::runtime_error("a rank does not connect");
  const auto ready = std::find_if(waiting.begin(), waiting.end(), [](const pollfd& one) { return one.revents != 0; });
  Descriptor peer(accept4(ready->fd, nullptr, nullptr, SOCK_CLOEXEC));
  if (peer.get() < 0) throw_errno("accept a connection");
  const int on = 1;
  setsockopt(peer.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return peer;
}

Group::Group(const std::vector<std::vector<std::byte>>& handles, std::size_t rank, const Listener& listener)
    : ranks_(handles.size()), rank_(rank) {
  if (rank == 0) {
    // The others learn of a failure when their sockets are closed, so each of them gets a connection.
    std::string failure;
    for (std::size_t i = 1; i < ranks_; ++i) try {
        peers_.emplace_back().socket = connect_to(handles[i]);
      } catch (const std::runtime_error& error) {
        failure = error.what();
      }
    if (!failure.empty()) throw std::runtime_error(failure);
    for (const Peer& peer : peers_) receive_byte(peer.socket);
    for (const Peer& peer : peers_) send_byte(peer.socket);
  } else {
    peers_.emplace_back().socket = listener.accept();
    send_byte(peers_[0].socket);
    receive_byte(peers_[0].socket);  // all ranks have joined
  }
}

std::uint64_t Group::add(Vector own) {
  if (rank_ == 0)
    own_.push_back(std::move(own));
  else
    append_message(peers_[0].out, own.data);
  return added_++;
}

std::optional<std::vector<std::byte>> Group::take(std::uint64_t number) {
  for (Peer& peer : peers_) exchange(peer);
  if (rank_ == 0) reduce();
  for (; rank_ != 0 && !peers_[0].messages.empty(); peers_[0].messages.pop_front())
    results_[reduced_++] = std::move(peers_[0].messages.front());
  const auto found = results_.find(number);
  if (found == results_.end()) {
    if (std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.ended; }))
      throw std::runtime_error("a peer has ended");
    return std::nullopt;
  }
  std::vector<std::byte> result = std::move(found->second);
  results_.erase(found);
  return result;
}

void Group::exchange(Peer& peer) {
  while (!peer.out.empty()) {
    const ssize_t sent = send(peer.socket.get(), peer.out.data(), peer.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    peer.ended = peer.ended || (sent < 0 && errno != EAGAIN && errno != EINTR);
    if (sent <= 0) break;
    peer.out.erase(peer.out.begin(), peer.out.begin() + sent);
  }
  std::array<std::byte, 65536> piece;
  for (;;) {
    const ssize_t received = recv(peer.socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    peer.ended = peer.ended || received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR);
    if (received <= 0) break;
    peer.in.insert(peer.in.end(), piece.begin(), piece.begin() + received);
  }
  for (;;) {
    std::uint64_t size;
    if (peer.in.size() < sizeof size) break;
    std::memcpy(&size, peer.in.data(), sizeof size);
    if (peer.in.size() - sizeof size < size) break;
    const auto first = peer.in.begin() + sizeof size;
    peer.messages.emplace_back(first, first + static_cast<std::ptrdiff_t>(size));
    peer.in.erase(peer.in.begin(), first + static_cast<std::ptrdiff_t>(size));
  }
}

// The order of the ranks makes the result the same in each run.
void Group::reduce() {
  const auto has_next = [](const Peer& peer) { return !peer.messages.empty(); };
  while (!own_.empty() && std::all_of(peers_.begin(), peers_.end(), has_next)) {
    Vector sum = std::move(own_.front());
    own_.pop_front();
    for (Peer& peer : peers_) {
      if (peer.messages.front().size() != sum.data.size()) throw std::runtime_error("ranks call with unequal sizes");
      reduction::combine(sum.type, sum.op, sum.data, peer.messages.front());
      peer.messages.pop_front();
    }
    for (Peer& peer : peers_) append_message(peer.out, sum.data);
    results_[reduced_++] = std::move(sum.data);
    for (Peer& peer : peers_) exchange(peer);
  }
}

}  // namespace plugfest::toy
