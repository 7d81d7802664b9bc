// A stream of messages between the controller and one thread of a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fabric/system/file.h"
#include "harness/wire/fields.h"

namespace plugfest::wire {

/// Precedes each message.
struct FrameHeader {
  std::uint32_t size = 0;
  /// Chosen by the controller; the answer repeats it.
  std::uint32_t id = 0;
  /// To the rank: an `Operation` or `ControlOperation`. From the rank: an `Answer`.
  std::uint32_t kind = 0;
};

/// Both sides refuse longer bodies.
inline constexpr std::uint32_t kMaxBody = 16u << 20;

/// Errors: WireError if `body` is longer than kMaxBody.
void require_sendable(std::span<const std::byte> body);

struct Frame {
  FrameHeader header;
  std::vector<std::byte> body;
};

/// Owns a connected stream socket. Thread safety: one thread may send while another one receives.
class Channel {
 public:
  explicit Channel(Descriptor socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  /// Sends a frame. `passed_fd`: a descriptor to pass with it, or -1. `wait_for_room`: if not null, it is called when
  /// the socket is full, instead of waiting without limit; if it throws, the channel is unusable. False when the peer
  /// has closed the channel. Errors: as require_sendable(), before anything is sent.
  bool send(std::uint32_t id, std::uint32_t kind, std::span<const std::byte> body, int passed_fd = -1,
            const std::function<void()>& wait_for_room = nullptr);

  /// Waits for a complete frame. nullopt: the peer has closed the channel. `passed`: takes a passed descriptor.
  /// Errors: WireError for a size over kMaxBody.
  std::optional<Frame> receive(Descriptor* passed = nullptr);

  /// The next frame if it has arrived completely. Never waits. Errors: WireError for a size over kMaxBody.
  std::optional<Frame> poll();
  /// True once the peer has closed the channel and its data has been read.
  bool closed() const { return closed_; }

 private:
  std::optional<Frame> take_frame();
  /// Reads once. False when no data is available (`wait` false) or the peer has closed the channel.
  bool fill(bool wait, Descriptor* passed);

  Descriptor socket_;
  bool closed_ = false;
  std::vector<std::byte> inbox_;
};

}  // namespace plugfest::wire
