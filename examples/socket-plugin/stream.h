// One direction of one connection: messages in order over a non-blocking TCP socket.
//
// A message is its length in 8 bytes, followed by its payload. Only calls make progress: post() and test() of any
// request transfer as many bytes as the socket takes or has.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

namespace example {

enum class Role : std::uint8_t { kSends, kReceives };

class Stream;

/// Memory that a stream may access.
struct Registration {
  Stream* stream = nullptr;
};

/// An operation in flight, or a free slot.
struct Request {
  Stream* stream = nullptr;  ///< null: the slot is free
  const Registration* memory = nullptr;
  std::byte* data = nullptr;
  std::uint64_t size = 0;       ///< posted size; the sent size once a receive is done
  std::uint64_t length = 0;     ///< the length field of the message
  std::size_t transferred = 0;  ///< bytes of length and payload so far
  bool done = false;
};

/// Thread-safe, except for construction and destruction.
class Stream {
 public:
  /// Takes ownership of a non-blocking socket.
  Stream(int socket, Role role) : socket_(socket), role_(role) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Adds an operation. Returns null when all slots are in use; the caller tries again later.
  Request* post(std::byte* data, std::size_t size, const Registration* memory);
  /// Makes progress and reports whether `request` is done. Returns false when the connection is broken and `request`
  /// will never be done.
  bool test(Request* request, bool* done, std::size_t* size);
  /// Ends the use of `memory`. If an operation in flight uses it, the connection breaks, since a part of the message is
  /// missing.
  void forget(const Registration* memory);

  Role role() const { return role_; }

 private:
  void advance();
  bool advance(Request& request);
  bool peer_is_silent();
  bool transfer(void* bytes, std::size_t count, std::size_t& transferred, std::size_t start);

  const int socket_;
  const Role role_;
  std::mutex mutex_;
  std::array<Request, 64> slots_;
  std::deque<Request*> in_flight_;  ///< oldest first
  bool broken_ = false;
  std::chrono::steady_clock::time_point waits_since_ = std::chrono::steady_clock::now();
};

}  // namespace example
