#include "fabric/rdma_cm/acceptor.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "fabric/system/file.h"

namespace plugfest::rdma_cm {
namespace {

// If more connections without a request arrive, the oldest one is closed.
constexpr std::size_t kMaxArrivals = 256;
constexpr std::chrono::milliseconds kAcceptPause(200);

// The index of the interface that has a link-local address; 0 if there is none.
int interface_of(const Address& address) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return 0;
  unsigned index = 0;
  for (const ifaddrs* entry = list; entry != nullptr && index == 0; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET6) continue;
    sockaddr_in6 ipv6 = {};
    std::memcpy(&ipv6, entry->ifa_addr, sizeof(ipv6));
    if (Address(ipv6.sin6_addr) == address) index = ::if_nametoindex(entry->ifa_name);
  }
  ::freeifaddrs(list);
  return static_cast<int>(index);
}

Descriptor listen_on(const Address& address) {
  Descriptor socket(::socket(address.is_ipv4() ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw_errno("create a socket");
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
  const roce::SocketAddress own({.address = address, .port = kManagerPort},
                                address.is_link_local() ? interface_of(address) : 0);
  if (::bind(socket.get(), own.get(), own.length()) != 0) throw_errno("bind a socket");
  if (::listen(socket.get(), SOMAXCONN) != 0) throw_errno("listen on a socket");
  return socket;
}

}  // namespace

void reject(int connection, const Message& request, RejectReason reason) {
  const MessageBytes bytes = encode({.type = MessageType::kReject, .port_space = request.port_space, .reason = reason});
  ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Acceptor::listen(const Address& address) {
  if (listeners_.contains(address.bytes)) return;
  if (!resume_) resume_.emplace(poller_, [this] { resume(); });
  Descriptor socket = listen_on(address);
  const int number = socket.get();
  poller_.add(number, EPOLLIN, [this, number](std::uint32_t) { accept(number); });
  listeners_.emplace(address.bytes, std::move(socket));
}

void Acceptor::listen(const BoundPort& port) {
  poller_.add(port.socket(), EPOLLIN, [this, &port](std::uint32_t) {
    MessageBytes bytes;
    std::optional<Descriptor> connection = port.receive(bytes);
    const std::optional<Message> request = connection ? decode(bytes) : std::nullopt;
    if (!request || request->type != MessageType::kRequest) return;
    try {
      if (!requested_(port.port(), *request, *connection))
        reject(connection->get(), *request, RejectReason::kInvalidServiceId);
    } catch (const std::exception&) {  // for example, no memory: only this connection is lost, not the port
    }
  });
}

void Acceptor::resume() {
  for (const auto& [address, listener] : listeners_) poller_.change(listener.get(), EPOLLIN);
}

void Acceptor::accept(int listener) {
  Descriptor connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection) {
    if (!must_pause_accepting(errno)) return;
    // The connection stays in the kernel's queue until a descriptor is free. A pause must not need one.
    poller_.change(listener, 0);
    resume_->start(kAcceptPause);
    return;
  }
  if (arrivals_.size() == kMaxArrivals) arrivals_.erase(arrivals_.begin());
  const std::uint64_t number = next_arrival_++;
  try {
    arrivals_[number] = std::make_unique<Stream>(
        poller_, std::move(connection),
        Stream::Callbacks{.connected = {},
                          .received = [this, number](const Message& message) { greet(number, message); },
                          .ended = [this, number](int) { arrivals_.erase(number); }});
  } catch (const std::exception&) {  // no memory: only this connection is lost, not the listener
    arrivals_.erase(number);
  }
}

void Acceptor::greet(std::uint64_t number, const Message& request) {
  const std::unique_ptr<Stream> stream = std::move(arrivals_.at(number));
  arrivals_.erase(number);
  if (request.type != MessageType::kRequest) return;
  const Port port = {.space = request.port_space,
                     .endpoint = {.address = stream->own(), .port = request.destination_port}};
  Descriptor connection = stream->release();
  if (requested_(port, request, connection)) return;
  const MessageBytes bytes = encode(request);
  if (!pass_connection(port, connection.get(), bytes.data(), bytes.size()))
    reject(connection.get(), request, RejectReason::kInvalidServiceId);
}

}  // namespace plugfest::rdma_cm
