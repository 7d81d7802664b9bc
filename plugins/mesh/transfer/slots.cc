// Parses groups and matches sends to their slots.
#include "plugins/mesh/transfer/slots.h"

#include <bit>

namespace mesh {

static_assert(std::endian::native == std::endian::little, "groups are sent as they are in memory");

void write_group(const Group& group, std::size_t lanes, std::byte* target) {
  std::memcpy(target, &group, Group::kHeaderBytes);
  target += Group::kHeaderBytes;
  for (std::uint32_t i = 0; i < group.count; ++i, target += Slot::bytes(lanes)) {
    std::memcpy(target, &group.slots[i], Slot::bytes(lanes));
  }
}

std::optional<Group> parse_group(std::span<const std::byte> bytes, std::size_t lanes) {
  Group group;
  if (bytes.size() < Group::kHeaderBytes) return std::nullopt;
  std::memcpy(&group.number, bytes.data(), sizeof group.number);
  std::memcpy(&group.count, bytes.data() + sizeof group.number, sizeof group.count);
  if (group.count < 1 || group.count > kMaxGroup || group.bytes(lanes) != bytes.size()) return std::nullopt;
  for (std::uint32_t i = 0; i < group.count; ++i) {
    std::memcpy(&group.slots[i], bytes.data() + Group::kHeaderBytes + i * Slot::bytes(lanes), Slot::bytes(lanes));
  }
  return group;
}

bool SlotQueue::push(const Group& group) {
  if (group.number != next_ || next_ - first_ == ring_.size()) return false;
  Waiting& waiting = ring_[next_ % ring_.size()];
  std::memcpy(&waiting.group, &group, Group::kHeaderBytes + group.count * sizeof(Slot));
  waiting.free = (1u << group.count) - 1;
  ++next_;
  return true;
}

std::optional<Match> SlotQueue::find(std::int32_t tag) const {
  if (first_ == next_) return std::nullopt;
  const Waiting& waiting = oldest();
  for (std::uint32_t index = 0; index < waiting.group.count; ++index) {
    const Slot& slot = waiting.group.slots[index];
    if ((waiting.free >> index & 1) != 0 && slot.tag == tag) {
      return Match{.slot = slot, .group = waiting.group.number, .index = index};
    }
  }
  return std::nullopt;
}

void SlotQueue::take(const Match& match) {
  Waiting& waiting = ring_[match.group % ring_.size()];
  waiting.free &= ~(1u << match.index);
  if (waiting.free == 0) ++first_;
}

}  // namespace mesh
