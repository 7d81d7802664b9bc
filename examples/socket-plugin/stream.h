// One direction of one connection: messages in order over a TCP socket that never blocks.
//
// A message is its length, 8 bytes, and its payload. Nothing moves by itself: test() of any request moves what there
// is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

namespace example {

enum class Role : std::uint8_t { kSends, kReceives };

class Stream;

/// Memory that a stream may touch.
struct Registration {
  Stream* stream = nullptr;
};

/// An operation that is under way. `stream` is null for a slot that is free.
struct Request {
  Stream* stream = nullptr;
  const Registration* memory = nullptr;
  std::byte* data = nullptr;
  std::uint64_t size = 0;    ///< posted; then, of a receive, what was sent
  std::uint64_t length = 0;  ///< as it stands before the payload
  std::size_t moved = 0;     ///< bytes of length and payload that are through
  bool done = false;
};

/// Thread safety: all members but the constructor and destructor, which nobody may race with.
class Stream {
 public:
  /// Takes the socket, which must not block.
  Stream(int socket, Role role) : socket_(socket), role_(role) {}
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Null when all slots are taken: not now.
  Request* post(std::byte* data, std::size_t size, const Registration* memory);
  /// Moves what can be moved. False when the connection is broken and `request` will never be done.
  bool test(Request* request, bool* done, std::size_t* size);
  /// What still names this memory is given up, and the connection with it: the stream cannot be continued behind it.
  void forget(const Registration* memory);

  Role role() const { return role_; }

 private:
  void advance();
  bool advance(Request& request);
  bool move(void* bytes, std::size_t count, std::size_t& moved, std::size_t start);

  const int socket_;
  const Role role_;
  std::mutex mutex_;
  std::array<Request, 64> slots_;
  std::deque<Request*> under_way_;
  bool broken_ = false;
};

}  // namespace example
