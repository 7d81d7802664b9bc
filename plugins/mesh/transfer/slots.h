// Matches sends to receive buffers. The receiver announces each receive as a group of slots. A send takes the first
// free slot with its tag in the oldest group that has free slots.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "harness/abi/base.h"
#include "plugins/mesh/handshake/message.h"
#include "plugins/mesh/transfer/queue_pair.h"

namespace mesh {

/// Maximum number of buffers of one receive.
inline constexpr int kMaxGroup = 8;
/// Maximum number of outstanding receives of one comm.
inline constexpr int kMaxReceives = plugfest::abi::kMaxRequests;
/// Maximum number of outstanding sends of one comm.
inline constexpr int kMaxSends = kMaxReceives * kMaxGroup;

/// A buffer of the receiver. The first `bytes(lanes)` bytes are sent as they are in memory, little-endian.
struct Slot {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::int32_t tag = 0;
  std::array<std::uint32_t, kMaxLanes> remote_keys = {};  ///< one for each lane
  std::uint32_t zero = 0;

  /// Whole multiples of 8 bytes: 24 for one lane, 32 for two or three, 40 for four.
  static constexpr std::size_t bytes(std::size_t lanes) { return 24 + lanes / 2 * 8; }
};
static_assert(sizeof(Slot) == Slot::bytes(kMaxLanes));

/// The peers exchange counts modulo 2^24.
inline constexpr std::uint32_t kCountMask = 0xffffff;

/// How far `later` is after `earlier`, numbers modulo 2^24; negative if it is before.
constexpr std::int32_t distance24(std::uint32_t earlier, std::uint32_t later) {
  return static_cast<std::int32_t>((later - earlier) << 8) >> 8;
}

/// Slots of a receive comm for eager messages that wait for their receive.
inline constexpr std::uint32_t kBounceSlots = 16;

/// The announcement of one receive: number, count, and `count` slots.
struct Group {
  std::uint32_t number = 0;  ///< number of announced receives of the comm before this one
  std::uint32_t count = 0;   ///< number of slots, 1 to kMaxGroup
  std::uint32_t tagged = 0;  ///< number of buffers with the eager tag in all earlier receives, modulo 2^24
  std::array<Slot, kMaxGroup> slots = {};

  static constexpr std::size_t kHeaderBytes = 8;
  std::size_t bytes(std::size_t lanes) const { return kHeaderBytes + count * Slot::bytes(lanes); }
};

/// The maximum size of an announcement.
inline constexpr std::size_t kMaxGroupBytes = Group::kHeaderBytes + kMaxGroup * sizeof(Slot);

/// Write an announcement for a connection with this number of lanes: a header, and slots one after the other. Return
/// the end of what they wrote.
std::byte* write_header(std::uint32_t number, std::uint32_t count, std::uint32_t tagged, std::byte* target);
std::byte* write_slot(const Slot& slot, std::size_t lanes, std::byte* target);
/// Parses an announcement into `group`; slots after the last one keep their values. Returns false unless the bytes are
/// exactly one group; `group` is then undefined.
bool parse_group(std::span<const std::byte> bytes, std::size_t lanes, Group& group);

/// The slot that a send takes.
struct Match {
  Slot slot;
  std::uint32_t group = 0;  ///< number of the group
  std::uint32_t index = 0;  ///< index of the slot in the group
  bool eager = false;       ///< the slot is a bounce slot of the receiver, of no group
};

/// The announced groups that have free slots. Not thread-safe.
///
/// If eager messages are enabled, the tag of the first receive is the eager tag, if that receive has one buffer. Small
/// messages with this tag may be sent before their receive is announced, and receives with this tag need no
/// announcement. The n-th message with this tag takes the n-th buffer with this tag, so both sides only count them:
/// an announcement tells how many buffers are before its own.
class SlotQueue {
 public:
  void enable_eager() { eager_enabled_ = true; }

  /// Adds the next group, an announcement. Returns false if the peer breaks the protocol: the bytes are not a group,
  /// its number is not the next one, or more than kMax groups wait.
  bool push(std::span<const std::byte> announcement, std::size_t lanes);

  /// The slot for a send with this tag; nullopt if the send must wait.
  std::optional<Match> find(std::int32_t tag);

  /// Whether the next message with this tag may be sent eagerly. Precondition: `find` found nothing.
  bool may_be_eager(std::int32_t tag) const {
    return eager_tag_ == tag && (empty() || distance24(tagged_, oldest().group.tagged) > 0);
  }
  /// Whether no announced group has free slots.
  bool empty() const { return first_ == next_; }
  /// Number of groups that were announced, modulo 2^24.
  std::uint32_t announced() const { return next_ & kCountMask; }
  /// Number of messages with the eager tag, modulo 2^24.
  std::uint32_t tagged() const { return tagged_ & kCountMask; }

  /// Whether slots of the match's group are free.
  bool has_more(const Match& match) const { return ring_[match.group % kMax].free != 0; }

  /// Marks the slot of the last `find` as taken, or counts an eager message.
  void take(const Match& match);

  /// Messages in the bounce slots may complete later receives than the oldest, and then the receiver announces more.
  static constexpr std::uint32_t kMax = 64;
  static_assert(kMax >= kMaxReceives + kBounceSlots);

 private:
  struct Waiting {
    Group group;
    std::uint32_t free = 0;  ///< one bit per free slot
  };
  const Waiting& oldest() const { return ring_[first_ % kMax]; }
  void drop_taken();

  std::array<Waiting, kMax> ring_;
  std::uint32_t first_ = 0;  ///< number of the oldest group
  std::uint32_t next_ = 0;   ///< number of the next group
  bool eager_enabled_ = false;
  std::optional<std::int32_t> eager_tag_;
  std::uint32_t tagged_ = 0;  ///< number of messages with the eager tag
};

/// A message is sent in chunks, each on one lane. The last piece of each chunk carries this immediate value.
struct Arrival {
  std::uint32_t group = 0;   ///< number of the group, modulo 64
  std::uint32_t index = 0;   ///< index of the slot, 0 to 7
  std::uint32_t chunks = 1;  ///< number of chunks of the message, 1 to 32
  std::uint32_t pieces = 0;  ///< number of pieces of this chunk before the last

  static constexpr std::uint32_t kGroupModulus = 64;
  static constexpr std::uint32_t kMaxChunks = 32;
  static constexpr std::uint32_t kMaxPieces = (1u << 18) - 2;
  /// The immediate value of an eager message. No arrival has this encoding.
  static constexpr std::uint32_t kEager = 0xffffffff;
  std::uint32_t encode() const { return index << 29 | group % kGroupModulus << 23 | (chunks - 1) << 18 | pieces; }
  static Arrival decode(std::uint32_t value) {
    return {.group = value >> 23 & (kGroupModulus - 1),
            .index = value >> 29,
            .chunks = (value >> 18 & (kMaxChunks - 1)) + 1,
            .pieces = value & ((1u << 18) - 1)};
  }
};
static_assert(SlotQueue::kMax <= Arrival::kGroupModulus);

/// Posts receives of a queue pair, and posts used ones again, in batches. Receives are used in the order of posting, so
/// the lists of work requests are made only once. Not thread-safe.
class ReceiveRing {
 public:
  /// Receives of one batch.
  static constexpr std::uint32_t kBatch = 16;

  /// `count`: a multiple of kBatch. Receive number i has `bytes` bytes of `memory` from byte `i * bytes` on, and wr_id
  /// i. With `bytes` 0 the receives have no buffers and no numbers.
  ReceiveRing(std::uint32_t count, std::size_t bytes, const StagingMemory& memory);

  /// Posts all receives. Returns 0 or an error number.
  int post_all(QueuePair& queue_pair);
  /// Notes that the oldest posted receive was used.
  void use() { ++used_; }
  /// Posts a batch again if so many receives were used. Returns 0 or an error number.
  int post_used(QueuePair& queue_pair) { return used_ < kBatch ? 0 : post_batch(queue_pair); }

 private:
  int post_batch(QueuePair& queue_pair);

  std::vector<ibv_recv_wr> receives_;  ///< lists of kBatch; they refer to the buffers
  std::vector<ibv_sge> buffers_;
  std::uint32_t used_;  ///< number of receives that are not posted
  std::size_t next_ = 0;
};

}  // namespace mesh
