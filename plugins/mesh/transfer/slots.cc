#include "plugins/mesh/transfer/slots.h"

#include <bit>

namespace mesh {

static_assert(std::endian::native == std::endian::little, "groups are sent as they are in memory");

namespace {

// Copies the part of a slot that a connection with this number of lanes sends. The sizes are constants, so the copy
// needs no call.
void copy_slot(void* target, const void* source, std::size_t lanes) {
  if (lanes < 2)
    std::memcpy(target, source, Slot::bytes(1));
  else if (lanes < 4)
    std::memcpy(target, source, Slot::bytes(2));
  else
    std::memcpy(target, source, Slot::bytes(4));
}

}  // namespace

std::byte* write_header(std::uint32_t number, std::uint32_t count, std::uint32_t tagged, std::byte* target) {
  const std::uint32_t word = count | tagged << 8;
  std::memcpy(target, &number, sizeof number);
  std::memcpy(target + sizeof number, &word, sizeof word);
  return target + Group::kHeaderBytes;
}

std::byte* write_slot(const Slot& slot, std::size_t lanes, std::byte* target) {
  copy_slot(target, &slot, lanes);
  return target + Slot::bytes(lanes);
}

bool parse_group(std::span<const std::byte> bytes, std::size_t lanes, Group& group) {
  if (bytes.size() < Group::kHeaderBytes) return false;
  std::memcpy(&group.number, bytes.data(), sizeof group.number);
  std::uint32_t word;
  std::memcpy(&word, bytes.data() + sizeof group.number, sizeof word);
  group.count = word & 0xff;
  group.tagged = word >> 8;
  if (group.count < 1 || group.count > kMaxGroup || group.bytes(lanes) != bytes.size()) return false;
  const std::byte* source = bytes.data() + Group::kHeaderBytes;
  for (std::uint32_t i = 0; i < group.count; ++i, source += Slot::bytes(lanes))
    copy_slot(&group.slots[i], source, lanes);
  return true;
}

bool SlotQueue::push(std::span<const std::byte> announcement, std::size_t lanes) {
  if (eager_tag_) drop_taken();
  if (next_ - first_ == kMax) return false;
  Waiting& waiting = ring_[next_ % kMax];
  if (!parse_group(announcement, lanes, waiting.group) || waiting.group.number != next_) return false;
  waiting.free = (1u << waiting.group.count) - 1;
  if (eager_enabled_ && next_ == 0 && waiting.group.count == 1) eager_tag_ = waiting.group.slots[0].tag;
  ++next_;
  return true;
}

// Marks the slots of the oldest groups whose messages were sent before the announcement arrived.
void SlotQueue::drop_taken() {
  for (; !empty(); ++first_) {
    Waiting& waiting = ring_[first_ % kMax];
    std::int32_t taken = distance24(waiting.group.tagged, tagged_);
    for (std::uint32_t index = 0; taken > 0 && index < waiting.group.count; ++index) {
      if (waiting.group.slots[index].tag != eager_tag_) continue;
      waiting.free &= ~(1u << index);
      --taken;
    }
    if (waiting.free != 0) return;
  }
}

std::optional<Match> SlotQueue::find(std::int32_t tag) {
  if (eager_tag_) drop_taken();
  if (empty()) return std::nullopt;
  const Waiting& waiting = oldest();
  if (eager_tag_ == tag && distance24(tagged_, waiting.group.tagged) > 0) return std::nullopt;
  for (std::uint32_t index = 0; index < waiting.group.count; ++index) {
    const Slot& slot = waiting.group.slots[index];
    if ((waiting.free >> index & 1) != 0 && slot.tag == tag)
      return Match{.slot = slot, .group = waiting.group.number, .index = index};
  }
  return std::nullopt;
}

void SlotQueue::take(const Match& match) {
  if (eager_tag_ == match.slot.tag) ++tagged_;
  if (match.eager) return;
  Waiting& waiting = ring_[match.group % kMax];
  waiting.free &= ~(1u << match.index);
  if (waiting.free == 0) ++first_;
}

ReceiveRing::ReceiveRing(std::uint32_t count, std::size_t bytes, const StagingMemory& memory)
    : receives_(bytes > 0 ? count : kBatch), buffers_(bytes > 0 ? count : 0), used_(count) {
  for (std::size_t i = 0; i < receives_.size(); ++i) {
    receives_[i] = {
        .wr_id = i, .next = (i + 1) % kBatch != 0 ? &receives_[i + 1] : nullptr, .sg_list = nullptr, .num_sge = 0};
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i] = {.addr = reinterpret_cast<std::uintptr_t>(memory.data() + i * bytes),
                   .length = static_cast<std::uint32_t>(bytes),
                   .lkey = memory.local_key()};
    receives_[i].sg_list = &buffers_[i];
    receives_[i].num_sge = 1;
  }
}

int ReceiveRing::post_all(QueuePair& queue_pair) {
  while (used_ > 0)
    if (const int error = post_batch(queue_pair)) return error;
  return 0;
}

int ReceiveRing::post_batch(QueuePair& queue_pair) {
  const int error = queue_pair.post_receive(&receives_[next_]);
  next_ = next_ + kBatch == receives_.size() ? 0 : next_ + kBatch;
  used_ -= kBatch;
  return error;
}

}  // namespace mesh
