#include "fabric/rdma_cm/stream.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

namespace plugfest::rdma_cm {
namespace {

// Retransmissions of the first packet: 4 take about 31 s.
constexpr int kConnectRetries = 4;

roce::Address address_of(int socket, int (*get)(int, sockaddr*, socklen_t*)) {
  roce::SocketAddress address;
  socklen_t length = roce::SocketAddress::kCapacity;
  return get(socket, address.to_fill(), &length) == 0 ? address.endpoint().address : roce::Address();
}

}  // namespace

Stream::Stream(Poller& poller, Descriptor socket, Callbacks callbacks)
    : poller_(poller), socket_(std::move(socket)), callbacks_(std::move(callbacks)) {
  poller_.add(socket_.get(), EPOLLIN, [this](std::uint32_t events) { handle(events); });
}

Stream::~Stream() {
  if (socket_) poller_.remove(socket_.get());
}

std::unique_ptr<Stream> Stream::connect_to(Poller& poller, const roce::Address& source, const roce::Address& peer,
                                           int interface, Callbacks callbacks) {
  const int family = peer.is_ipv4() ? AF_INET : AF_INET6;
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return nullptr;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_SYNCNT, &kConnectRetries, sizeof(kConnectRetries));
  const roce::SocketAddress from({.address = source, .port = 0}, interface);
  const roce::SocketAddress to({.address = peer, .port = kManagerPort}, interface);
  if (::bind(socket.get(), from.get(), from.length()) != 0) return nullptr;
  if (::connect(socket.get(), to.get(), to.length()) != 0 && errno != EINPROGRESS) return nullptr;
  auto stream = std::make_unique<Stream>(poller, std::move(socket), std::move(callbacks));
  stream->connecting_ = true;
  poller.change(stream->socket_.get(), EPOLLOUT);
  return stream;
}

bool Stream::send(const Message& message) {
  const MessageBytes bytes = encode(message);
  return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

void Stream::finish() { ::shutdown(socket_.get(), SHUT_WR); }

roce::Address Stream::peer() const { return address_of(socket_.get(), ::getpeername); }
roce::Address Stream::own() const { return address_of(socket_.get(), ::getsockname); }

Descriptor Stream::release() {
  poller_.remove(socket_.get());
  return std::move(socket_);
}

void Stream::handle(std::uint32_t) {
  if (!connecting_) return receive();
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return end(error);
  if (peer() == roce::Address()) return;  // not connected yet
  connecting_ = false;
  poller_.change(socket_.get(), EPOLLIN);
  const auto connected = callbacks_.connected;  // it may destroy this stream
  connected();
}

// Reads at most one message: the callback may destroy this stream. epoll reports again what is left.
void Stream::receive() {
  const ssize_t count = ::recv(socket_.get(), bytes_.data() + received_, bytes_.size() - received_, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return end(count == 0 ? 0 : errno);
  received_ += static_cast<std::size_t>(count);
  if (received_ < bytes_.size()) return;
  received_ = 0;
  const std::optional<Message> message = decode(bytes_);
  if (!message) return end(EPROTO);
  const auto received = callbacks_.received;
  received(*message);
}

void Stream::end(int error) {
  poller_.remove(socket_.get());
  const auto ended = callbacks_.ended;
  ended(error);
}

}  // namespace plugfest::rdma_cm
