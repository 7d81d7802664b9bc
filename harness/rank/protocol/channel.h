// One stream of messages between the controller and one thread of a rank.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fabric/system/descriptor.h"
#include "harness/rank/protocol/wire.h"

namespace plugfest::rank {

/// Before each message.
struct FrameHeader {
  /// Of the body that follows.
  std::uint32_t size = 0;
  /// Chosen by the controller, repeated in the answer.
  std::uint32_t id = 0;
  /// To the rank: an `Operation`. From the rank: an `Answer`.
  std::uint32_t kind = 0;
};

/// Longer bodies are refused by both sides.
inline constexpr std::uint32_t kLargestBody = 16u << 20;

struct Frame {
  FrameHeader header;
  std::vector<std::byte> body;
};

/// Owns a connected stream socket. Sending and receiving may go on in two threads; each in one at a time.
class Channel {
 public:
  explicit Channel(Descriptor socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  /// Sends all of it. `passed_fd`: a descriptor to hand over, or -1. False when the other side is gone.
  bool send(std::uint32_t id, std::uint32_t kind, std::span<const std::byte> body, int passed_fd = -1);

  /// Waits for a whole frame. nullopt: the other side is gone. `passed_fd` gets a descriptor that came along, or -1.
  /// Errors: WireError for a size over kLargestBody.
  std::optional<Frame> receive(int* passed_fd = nullptr);

  /// Takes in what has arrived; a whole frame if there is one. Never waits. `gone()` tells the end of the stream.
  std::optional<Frame> poll();
  bool gone() const { return gone_; }

 private:
  std::optional<Frame> take_frame();
  /// One read; false when nothing was there (`wait` false) or the stream ended.
  bool fill(bool wait, int* passed_fd);

  Descriptor socket_;
  bool gone_ = false;
  std::vector<std::byte> inbox_;
};

}  // namespace plugfest::rank
