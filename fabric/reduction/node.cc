#include "fabric/reduction/node.h"

#include <algorithm>
#include <utility>

#include "fabric/reduction/operation.h"

namespace plugfest::reduction {
namespace {

DataType type_of(const PacketHeader& header) { return static_cast<DataType>(header.dtype); }
Operator op_of(const PacketHeader& header) { return static_cast<Operator>(header.op); }

std::size_t bytes_of(const PacketHeader& header) { return header.elements * element_bytes(type_of(header)); }

bool is_supported(const PacketHeader& header) {
  return header.dtype < kDataTypes && header.op < kOperators && is_supported(type_of(header), op_of(header));
}

bool is_logical(Operator op) {
  return op == Operator::kLogicalAnd || op == Operator::kLogicalOr || op == Operator::kLogicalXor;
}

bool agrees(const PacketHeader& one, const PacketHeader& other) {
  return one.dtype == other.dtype && one.op == other.op && one.elements == other.elements;
}

}  // namespace

void AggregationNode::configure(GroupConfig config) {
  const std::size_t slots = 2 * std::size_t{config.fragment_window};
  groups_.insert_or_assign(config.group, Group{std::move(config), std::vector<Slot>(slots)});
}

void AggregationNode::receive(const Address& source, std::span<const std::byte> bytes) {
  const std::optional<Packet> packet = parse_packet(bytes);
  if (!packet) return drop(Drop::kMalformed);
  const auto found = groups_.find(packet->group);
  if (found == groups_.end()) return drop(Drop::kUnknownGroup);
  Group& group = found->second;
  const GroupConfig& config = group.config;
  const bool rises = packet->kind == PacketKind::kContribution;
  const bool is_known =
      rises ? packet->child < config.children.size() && config.children[packet->child] == source
            : config.parent && config.parent->address == source && config.parent->child == packet->child;
  if (!is_known) return drop(Drop::kForeign);
  if (!is_supported(*packet) || bytes_of(*packet) > config.max_payload ||
      packet->payload.size() != (packet->empty ? 0 : bytes_of(*packet)))
    return drop(Drop::kMismatch);
  if (rises)
    on_contribution(group, *packet);
  else
    on_result(group, *packet);
}

void AggregationNode::on_contribution(Group& group, const Packet& packet) {
  const std::size_t index = packet.slot % group.slots.size();
  Slot& slot = group.slots[index];
  if (slot.number != packet.slot) {
    const std::uint64_t next = slot.number ? *slot.number + group.slots.size() : index;
    if (packet.slot != next || (slot.number && !slot.has_result)) return drop(Drop::kOutOfWindow);
    const std::size_t children = group.config.children.size();
    slot = {.number = packet.slot,
            .header = packet,
            .arrived = std::vector<bool>(children),
            .missing = children,
            .early = {},
            .value = std::move(slot.value)};
    slot.value.clear();
  }
  if (!agrees(slot.header, packet)) return drop(Drop::kMismatch);
  if (slot.arrived[packet.child]) {
    ++counters_.repeats;
    if (slot.has_result)
      send_down(group, slot, packet.child);
    else if (slot.missing == 0)
      send_up(group, slot);
    return;
  }
  ++counters_.contributions;
  slot.arrived[packet.child] = true;
  --slot.missing;
  add(slot, packet.child, packet.payload);
  if (slot.missing == 0) complete(group, slot);
}

void AggregationNode::add(Slot& slot, std::size_t child, std::span<const std::byte> payload) {
  const auto add_now = [&](std::span<const std::byte> contribution) {
    if (contribution.empty()) return;
    const DataType type = type_of(slot.header);
    const Operator op = op_of(slot.header);
    if (!slot.value.empty()) return combine(type, op, slot.value.payload(), contribution);
    slot.value.assign(contribution);
    // A single contribution of 5 also gives 1.
    if (is_logical(op)) combine(type, Operator::kLogicalOr, slot.value.payload(), contribution);
  };
  if (!depends_on_order(type_of(slot.header), op_of(slot.header))) return add_now(payload);
  if (child != slot.next) {
    slot.early.emplace(child, std::vector(payload.begin(), payload.end()));
    return;
  }
  add_now(payload);
  ++slot.next;
  for (auto early = slot.early.begin(); early != slot.early.end() && early->first == slot.next; ++slot.next) {
    add_now(early->second);
    early = slot.early.erase(early);
  }
}

void AggregationNode::complete(Group& group, Slot& slot) {
  if (group.config.parent) return send_up(group, slot);
  if (slot.value.empty()) slot.value.set_zero(bytes_of(slot.header));
  finish(group, slot);
}

void AggregationNode::on_result(Group& group, const Packet& packet) {
  Slot& slot = group.slots[packet.slot % group.slots.size()];
  if (slot.number != packet.slot || slot.missing != 0) return drop(Drop::kOutOfWindow);
  if (packet.empty || !agrees(slot.header, packet)) return drop(Drop::kMismatch);
  if (slot.has_result) {
    ++counters_.repeats;
    return;
  }
  slot.value.assign(packet.payload);
  finish(group, slot);
}

void AggregationNode::finish(Group& group, Slot& slot) {
  slot.has_result = true;
  ++counters_.results;
  for (std::size_t child = 0; child < group.config.children.size(); ++child) send_down(group, slot, child);
}

void AggregationNode::send_up(const Group& group, Slot& slot) {
  PacketHeader header = slot.header;
  header.kind = PacketKind::kContribution;
  header.child = group.config.parent->child;
  header.empty = slot.value.empty() && bytes_of(header) != 0;
  send_(group.config.parent->address, slot.value.packet(header));
}

void AggregationNode::send_down(const Group& group, Slot& slot, std::size_t child) {
  PacketHeader header = slot.header;
  header.kind = PacketKind::kResult;
  header.child = static_cast<std::uint16_t>(child);
  header.empty = false;
  send_(group.config.children[child], slot.value.packet(header));
}

void AggregationNode::Value::resize(std::size_t bytes) {
  bytes_ = bytes;
  if (memory_.size() < kPacketHeaderBytes + bytes) memory_.resize(kPacketHeaderBytes + bytes);
}

void AggregationNode::Value::set_zero(std::size_t bytes) {
  resize(bytes);
  std::ranges::fill(payload(), std::byte{0});
}

void AggregationNode::Value::assign(std::span<const std::byte> payload) {
  resize(payload.size());
  std::ranges::copy(payload, this->payload().begin());
}

std::span<const std::byte> AggregationNode::Value::packet(const PacketHeader& header) {
  return std::span(memory_).first(write_packet(header, bytes_, memory_));
}

}  // namespace plugfest::reduction
