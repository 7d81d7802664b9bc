#include "stream.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace example {

Stream::~Stream() { close(socket_); }

Request* Stream::post(std::byte* data, std::size_t size, const Registration* memory) {
  const std::lock_guard lock(mutex_);
  const auto slot =
      std::find_if(slots_.begin(), slots_.end(), [](const Request& each) { return each.stream == nullptr; });
  if (slot == slots_.end()) return nullptr;
  *slot = {this, memory, data, size, size, 0, false};
  under_way_.push_back(&*slot);
  advance();
  return &*slot;
}

bool Stream::test(Request* request, bool* done, std::size_t* size) {
  const std::lock_guard lock(mutex_);
  if (!request->done) advance();
  *done = request->done;
  *size = request->size;
  if (!*done) return !broken_;
  request->stream = nullptr;
  return true;
}

void Stream::forget(const Registration* memory) {
  const std::lock_guard lock(mutex_);
  broken_ |=
      std::any_of(under_way_.begin(), under_way_.end(), [&](const Request* each) { return each->memory == memory; });
}

void Stream::advance() {
  while (!broken_ && !under_way_.empty() && advance(*under_way_.front())) under_way_.pop_front();
}

/// Whether it is done.
bool Stream::advance(Request& request) {
  constexpr std::size_t kLengthBytes = sizeof request.length;
  if (!move(&request.length, kLengthBytes, request.moved, 0)) return false;
  if (request.length > request.size) {
    broken_ = true;  // the peer sent more than there is room for
    return false;
  }
  request.size = request.length;
  request.done = move(request.data, request.size, request.moved, kLengthBytes);
  return request.done;
}

/// Moves the part of a message that begins `start` bytes behind its first. Whether all of it is through.
bool Stream::move(void* bytes, std::size_t count, std::size_t& moved, std::size_t start) {
  while (moved < start + count) {
    std::byte* const rest = static_cast<std::byte*>(bytes) + (moved - start);
    const std::size_t left = start + count - moved;
    const ssize_t n = role_ == Role::kSends ? send(socket_, rest, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                                            : recv(socket_, rest, left, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n <= 0) {
      broken_ = true;  // 0: the peer has closed
      return false;
    }
    moved += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace example
