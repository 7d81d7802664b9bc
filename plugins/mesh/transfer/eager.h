// Counts small messages that are sent before their receives are announced, on both sides; see SlotQueue.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "plugins/mesh/handshake/message.h"
#include "plugins/mesh/transfer/slots.h"

namespace mesh {

/// The sender's side: the bounce slots that are free, and the message that cannot be sent eagerly. Not thread-safe.
class EagerSender {
 public:
  /// Uses these slots of the receiver.
  void enable(const Bounce& bounce) { bounce_ = bounce; }

  /// Maximum size of an eager message; 0: none.
  std::uint32_t bytes() const { return bounce_.bytes; }
  /// Whether a message of this size fits a slot, and a slot is free.
  bool has_room(std::size_t bytes) const { return bytes <= bounce_.bytes && sent_ - copied_ != kBounceSlots; }
  /// Takes a free slot. Precondition: has_room().
  Slot take(std::int32_t tag) {
    return {.address = bounce_.address + std::uint64_t{sent_++ % kBounceSlots} * bounce_.bytes,
            .size = bounce_.bytes,
            .tag = tag,
            .remote_keys = {bounce_.remote_key}};
  }
  /// Notes that the receiver has copied `count` messages, modulo 2^24. Returns false if that is impossible.
  bool on_copied(std::uint32_t count) {
    const std::uint32_t more = (count - copied_) & kCountMask;
    if (more > sent_ - copied_) return false;
    copied_ += more;
    return true;
  }

  /// Whether to ask the receiver now for the announcement of the receive of message number `message`, which is too
  /// large to be sent eagerly. `now_ms`: time of the coarse clock.
  bool must_ask(std::uint32_t message, std::int64_t now_ms) {
    if (waiting_ != message) {
      waiting_ = message;
      waiting_since_ms_ = now_ms;
      ask_after_ms_ = kAskMs;
    }
    return now_ms - waiting_since_ms_ >= ask_after_ms_;
  }
  /// Notes that the receiver was asked. The next question follows after twice the wait.
  void asked() { ask_after_ms_ *= 2; }

 private:
  // Time until the receiver is asked to announce a receive that it may not have announced because it is small. Only a
  // message that is too large for its receive waits this long.
  static constexpr std::int64_t kAskMs = 10;

  Bounce bounce_;
  std::uint32_t sent_ = 0;                ///< number of eager messages
  std::uint32_t copied_ = 0;              ///< number of those that the receiver has copied
  std::optional<std::uint32_t> waiting_;  ///< number of the message that waits for its announcement
  std::int64_t waiting_since_ms_ = 0;
  std::int64_t ask_after_ms_ = 0;
};

/// The receiver's side: the messages in the bounce slots, and the buffers that await messages. All buffers with the
/// eager tag and all messages with it are counted; the n-th message is for the n-th buffer. Not thread-safe.
class EagerReceiver {
 public:
  struct Place {
    std::uint8_t request = 0;
    std::uint8_t part = 0;
    bool operator==(const Place&) const = default;
  };
  /// A message in a bounce slot.
  struct Message {
    std::uint32_t slot = 0;
    std::uint32_t bytes = 0;
  };

  /// `bytes`: maximum size of an eager message; 0: none.
  explicit EagerReceiver(std::uint32_t bytes) : bytes_(bytes) {}

  std::uint32_t bytes() const { return bytes_; }
  /// The tag of eager messages: the tag of the first receive.
  std::optional<std::int32_t> tag() const { return tag_; }
  void set_tag(std::int32_t tag) { tag_ = tag; }

  /// Number of messages that wait in bounce slots for their receive.
  std::uint32_t waiting() const { return arrived_ - copied_; }
  /// The oldest of these messages. Precondition: waiting() > 0.
  Message oldest() const { return {.slot = copied_ % kBounceSlots, .bytes = sizes_[copied_ % kBounceSlots]}; }
  /// Notes that the oldest message was copied to its buffer.
  void copied() { ++copied_; }
  /// Number of messages that were copied, if it is time to tell the sender: once for several.
  std::optional<std::uint32_t> to_tell() const {
    return copied_ - told_ >= kBounceSlots / 2 ? std::optional(copied_) : std::nullopt;
  }
  void told() { told_ = copied_; }

  /// Whether the sender must know of the next receive, which has one buffer of `bytes` with the eager tag: its message
  /// has not arrived, and the sender does not send it without an announcement.
  bool awaits_announcement(std::size_t bytes) const {
    return waiting() == 0 && (bytes > bytes_ || to_announce_ == buffers_);
  }
  /// Number of buffers with the eager tag.
  std::uint32_t buffers() const { return buffers_; }
  void add(Place place) { places_[buffers_++ % places_.size()] = place; }

  /// Whether the sender may send an eager message of this size now.
  bool accepts(std::uint32_t bytes) const { return tag_ && bytes <= bytes_ && waiting() != kBounceSlots; }
  /// Counts an eager message. Returns its buffer; null if that is not posted yet. Precondition: accepts().
  const Place* arrive(std::uint32_t bytes) {
    sizes_[arrived_++ % kBounceSlots] = bytes;
    return count_message();
  }
  /// Counts a message with the eager tag that was written to its buffer. Returns the buffer that it belongs to.
  const Place* count_message() {
    const Place* place = next();
    ++messages_;
    return place;
  }
  /// Notes that the sender waits for the announcement of the next buffer. Returns that buffer; null if it is not
  /// posted.
  const Place* ask() {
    to_announce_ = messages_;
    return next();
  }
  /// Number of messages with the eager tag.
  std::uint32_t messages() const { return messages_; }

 private:
  const Place* next() const {
    return static_cast<std::int32_t>(buffers_ - messages_) > 0 ? &places_[messages_ % places_.size()] : nullptr;
  }

  const std::uint32_t bytes_;
  std::optional<std::int32_t> tag_;
  std::array<std::uint32_t, kBounceSlots> sizes_ = {};  ///< sizes of the messages in the slots
  std::uint32_t arrived_ = 0;                           ///< number of eager messages
  std::uint32_t copied_ = 0;
  std::uint32_t told_ = 0;  ///< the part of `copied_` that the sender knows
  std::uint32_t buffers_ = 0;
  std::uint32_t messages_ = 0;
  std::array<Place, kMaxReceives * kMaxGroup> places_;  ///< the buffers that await their messages, by number
  std::optional<std::uint32_t> to_announce_;  ///< number of the buffer whose announcement the sender asked for
};

}  // namespace mesh
