#include "stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace example {

Stream::~Stream() { close(socket_); }

Request* Stream::post(std::byte* data, std::size_t size, const Registration* memory) {
  const std::lock_guard lock(mutex_);
  const auto slot =
      std::find_if(slots_.begin(), slots_.end(), [](const Request& request) { return request.stream == nullptr; });
  if (slot == slots_.end()) return nullptr;
  *slot = {this, memory, data, size, size, 0, false};
  if (in_flight_.empty()) waits_since_ = std::chrono::steady_clock::now();
  in_flight_.push_back(&*slot);
  advance();
  return &*slot;
}

bool Stream::test(Request* request, bool* done, std::size_t* size) {
  const std::lock_guard lock(mutex_);
  if (!request->done) advance();
  broken_ |= role_ == Role::kSends && peer_is_silent();
  *done = request->done;
  *size = request->size;
  if (!*done) return !broken_;
  request->stream = nullptr;
  return true;
}

void Stream::forget(const Registration* memory) {
  const std::lock_guard lock(mutex_);
  broken_ |= std::any_of(in_flight_.begin(), in_flight_.end(),
                         [&](const Request* request) { return request->memory == memory; });
}

void Stream::advance() {
  while (!broken_ && !in_flight_.empty() && advance(*in_flight_.front())) in_flight_.pop_front();
}

// Whether the kernel of the peer has acknowledged nothing for long, so that the network is down or the host is dead.
// TCP alone gives up after 15 minutes. A peer that is alive and does not receive still answers.
bool Stream::peer_is_silent() {
  constexpr std::uint32_t kMaxMilliseconds = 15'000;
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(socket_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  const auto now = std::chrono::steady_clock::now();
  if (info.tcpi_unacked == 0 && info.tcpi_probes == 0) waits_since_ = now;  // the peer owes no answer
  return info.tcpi_last_ack_recv > kMaxMilliseconds && now - waits_since_ > std::chrono::milliseconds(kMaxMilliseconds);
}

bool Stream::advance(Request& request) {
  constexpr std::size_t kLengthBytes = sizeof request.length;
  if (!transfer(&request.length, kLengthBytes, request.transferred, 0)) return false;
  if (request.length > request.size) {
    broken_ = true;  // the message is larger than the receive
    return false;
  }
  request.size = request.length;
  request.done = transfer(request.data, request.size, request.transferred, kLengthBytes);
  return request.done;
}

// Sends or receives the part of a message that starts at offset `start`: `count` bytes at `bytes`. `transferred`
// counts the bytes of the message so far. Returns whether the part is complete.
bool Stream::transfer(void* bytes, std::size_t count, std::size_t& transferred, std::size_t start) {
  while (transferred < start + count) {
    std::byte* const rest = static_cast<std::byte*>(bytes) + (transferred - start);
    const std::size_t left = start + count - transferred;
    const ssize_t n = role_ == Role::kSends ? send(socket_, rest, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                                            : recv(socket_, rest, left, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n <= 0) {
      broken_ = true;  // 0: the peer closed the connection
      return false;
    }
    transferred += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace example
