// Which receive buffer a send goes to. The receiver announces each of its receives as a group of slots; a send takes
// the first free slot with its tag in the oldest group that still has free ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "harness/abi/base.h"

namespace mesh {

/// Buffers of one receive, at most.
inline constexpr int kMaxGroup = 8;
/// Receives of one comm that may be outstanding.
inline constexpr int kMaxReceives = plugfest::abi::kMaxRequests;
/// Sends of one comm that may be outstanding.
inline constexpr int kMaxSends = kMaxReceives * kMaxGroup;

/// A buffer at the receiver.
struct Slot {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint32_t remote_key = 0;
  std::int32_t tag = 0;
};
static_assert(sizeof(Slot) == 24);

/// One receive as it is announced: this many bytes, as they lie in memory. Both ends are little-endian.
struct Group {
  std::uint32_t number = 0;  ///< counts the receives of the comm
  std::uint32_t count = 0;   ///< of slots, 1 to kMaxGroup
  std::array<Slot, kMaxGroup> slots = {};

  static constexpr std::size_t kHeaderBytes = 8;
  std::size_t bytes() const { return kHeaderBytes + count * sizeof(Slot); }
};
static_assert(sizeof(Group) == Group::kHeaderBytes + kMaxGroup * sizeof(Slot));

/// Nothing unless the bytes are exactly one group.
std::optional<Group> parse_group(std::span<const std::byte> bytes);

/// Where one send goes.
struct Match {
  Slot slot;
  std::uint32_t group = 0;  ///< its number
  std::uint32_t index = 0;  ///< of the slot in the group
};

/// The announced groups that still have free slots. Not thread safe.
class SlotQueue {
 public:
  /// Takes the next group. False if it is not the next one by its number, or more than kMaxReceives are waiting: the
  /// peer does not keep to the protocol.
  bool push(const Group& group);

  /// The slot that a send with this tag goes to, or nothing as long as it has to wait.
  std::optional<Match> find(std::int32_t tag) const;

  /// Takes what find() gave, always of the oldest group.
  void take(const Match& match);

 private:
  struct Waiting {
    Group group;
    std::uint32_t free = 0;  ///< a bit per slot
  };
  const Waiting& oldest() const { return ring_[first_ % ring_.size()]; }

  std::array<Waiting, kMaxReceives> ring_;
  std::uint32_t first_ = 0;  ///< number of the oldest group
  std::uint32_t next_ = 0;   ///< number of the group that is expected next
};

/// The immediate value that comes with the last piece of a message: it says which slot has been filled, and how many
/// whole pieces came before.
struct Arrival {
  std::uint32_t group = 0;   ///< its number, modulo 64
  std::uint32_t index = 0;   ///< of the slot, 0 to 7
  std::uint32_t pieces = 0;  ///< whole ones before the last

  static constexpr std::uint32_t kGroupModulus = 64;
  static constexpr std::uint32_t kMaxPieces = (1u << 23) - 1;
  std::uint32_t encode() const { return index << 29 | group % kGroupModulus << 23 | pieces; }
  static Arrival decode(std::uint32_t value) {
    return {.group = value >> 23 & (kGroupModulus - 1), .index = value >> 29, .pieces = value & kMaxPieces};
  }
};
static_assert(kMaxReceives <= Arrival::kGroupModulus);

}  // namespace mesh
