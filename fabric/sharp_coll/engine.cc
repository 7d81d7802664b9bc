#include "fabric/sharp_coll/engine.h"

#include "fabric/system/number.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace plugfest::sharp_coll {
namespace {

// A fragment is sent again at once when a contribution that was sent this many transmissions later has its result.
constexpr std::uint64_t kReorderingTolerance = 3;

constexpr std::uint64_t kNoSlot = ~std::uint64_t{0};

}  // namespace

Engine::Engine(Settings settings) : settings_(settings), outstanding_(std::max(settings.fragment_window, 1u)) {}

std::shared_ptr<Operation> Engine::post(const Transfer& transfer, Nanoseconds now) {
  auto operation = std::make_shared<Operation>(transfer);
  ++counters_.operations;
  if (status_ != SHARP_COLL_SUCCESS || transfer.bytes == 0) {
    operation->status = status_;
    return operation;
  }
  if (transfer.overwrites_source()) {
    const std::byte* const source = transfer.source.data;
    operation->source_copy.assign(source, source + (transfer.source.end - transfer.source.begin));
    operation->transfer.source.data = operation->source_copy.data();
  }
  const std::size_t fragment = fragment_bytes(transfer);
  operation->first_slot = posted_;
  operation->fragments = divide_up(transfer.bytes, fragment);
  operation->without_result = operation->fragments;
  posted_ += operation->fragments;
  counters_.fragments += operation->fragments;
  unsent_.push_back(operation);
  if (unfinished_++ == 0) last_progress_ = now;
  return operation;
}

std::size_t Engine::fragment_bytes(const Transfer& transfer) const {
  return settings_.max_payload / transfer.element_bytes * transfer.element_bytes;
}

Engine::Fragment Engine::fragment_of(const Operation& operation, std::uint64_t slot) const {
  const std::size_t fragment = fragment_bytes(operation.transfer);
  const std::size_t begin = (slot - operation.first_slot) * fragment;
  return {begin, std::min(begin + fragment, operation.transfer.bytes)};
}

std::size_t Engine::packet_capacity() const { return reduction::kPacketHeaderBytes + settings_.max_payload; }

std::size_t Engine::next_packet(Nanoseconds now, std::span<std::byte> packet) {
  if (status_ != SHARP_COLL_SUCCESS) return 0;
  if (const std::uint64_t slot = slot_to_repeat(now); slot != kNoSlot) {
    ++counters_.repeats;
    return transmit(slot, now, packet);
  }
  if (unsent_.empty() || next_ >= oldest_ + outstanding_.size()) return 0;
  const std::uint64_t slot = next_++;
  at(slot) = {.operation = unsent_.front()};
  if (next_ == unsent_.front()->first_slot + unsent_.front()->fragments) unsent_.pop_front();
  ++counters_.contributions;
  return transmit(slot, now, packet);
}

// The oldest fragment, if later ones have been answered; any fragment whose deadline has passed, unless results still
// arrive.
std::uint64_t Engine::slot_to_repeat(Nanoseconds now) {
  if (oldest_ == next_) return kNoSlot;
  if (latest_answered_ >= at(oldest_).order + kReorderingTolerance) return oldest_;
  if (now < next_deadline()) return kNoSlot;
  deadline_ = kNever;
  for (std::uint64_t slot = oldest_; slot != next_; ++slot) {
    const Outstanding& fragment = at(slot);
    if (fragment.operation == nullptr) continue;
    deadline_ = std::min(deadline_, fragment.deadline);
    if (fragment.deadline <= now) return slot;
  }
  return kNoSlot;
}

std::size_t Engine::transmit(std::uint64_t slot, Nanoseconds now, std::span<std::byte> packet) {
  Outstanding& fragment = at(slot);
  fragment.order = ++transmissions_;
  if (fragment.transmissions == 0) fragment.sent = now;
  fragment.deadline = now + round_trip_.timeout(++fragment.transmissions);
  deadline_ = std::min(deadline_, fragment.deadline);
  return write(*fragment.operation, slot, packet);
}

std::size_t Engine::write(const Operation& operation, std::uint64_t slot, std::span<std::byte> packet) const {
  const Transfer& transfer = operation.transfer;
  const Fragment fragment = fragment_of(operation, slot);
  const std::size_t begin = std::max(fragment.begin, transfer.source.begin);
  const std::size_t end = std::min(fragment.end, transfer.source.end);
  const bool empty = begin >= end;
  const std::span<std::byte> payload =
      packet.subspan(reduction::kPacketHeaderBytes, empty ? 0 : fragment.end - fragment.begin);
  if (!empty) {
    std::byte* const data = payload.data();
    std::memset(data, 0, begin - fragment.begin);
    std::memcpy(data + (begin - fragment.begin), transfer.source.data + (begin - transfer.source.begin), end - begin);
    std::memset(data + (end - fragment.begin), 0, fragment.end - end);
  }
  reduction::PacketHeader header;
  header.kind = reduction::PacketKind::kContribution;
  header.dtype = static_cast<std::uint8_t>(transfer.dtype);
  header.op = static_cast<std::uint8_t>(transfer.op);
  header.empty = empty;
  header.group = settings_.group;
  header.child = settings_.child;
  header.slot = slot;
  header.elements = static_cast<std::uint32_t>((fragment.end - fragment.begin) / transfer.element_bytes);
  return reduction::write_packet(header, payload.size(), packet);
}

void Engine::on_packet(std::span<const std::byte> packet, Nanoseconds now) {
  if (status_ != SHARP_COLL_SUCCESS) return;
  const std::optional<reduction::Packet> result = reduction::parse_packet(packet);
  if (!result || result->kind != reduction::PacketKind::kResult || result->group != settings_.group ||
      result->slot >= next_) {
    ++counters_.invalid_packets;
    return;
  }
  last_result_ = now;
  const std::uint64_t slot = result->slot;
  if (slot < oldest_ || at(slot).operation == nullptr) {
    ++counters_.repeated_results;
    return;
  }
  Outstanding& fragment = at(slot);
  if (!fits(*fragment.operation, slot, *result)) {
    ++counters_.invalid_packets;
    return;
  }
  ++counters_.results;
  last_progress_ = now;
  // After a repeat, the time is an upper limit. That is better than no estimate: on a slow link, the first timeout ends
  // before the first result.
  if (fragment.transmissions == 1 || round_trip_.is_unknown()) round_trip_.add(now - fragment.sent);
  latest_answered_ = std::max(latest_answered_, fragment.order);
  const std::shared_ptr<Operation> operation = std::exchange(fragment.operation, nullptr);
  store(*operation, slot, result->payload);
  while (oldest_ != next_ && at(oldest_).operation == nullptr) ++oldest_;
  if (oldest_ == next_) deadline_ = kNever;
  if (--operation->without_result == 0) {
    operation->status = SHARP_COLL_SUCCESS;
    --unfinished_;
  }
}

bool Engine::fits(const Operation& operation, std::uint64_t slot, const reduction::Packet& result) const {
  const Fragment fragment = fragment_of(operation, slot);
  const std::size_t bytes = fragment.end - fragment.begin;
  return result.dtype == operation.transfer.dtype && result.op == operation.transfer.op &&
         result.elements == bytes / operation.transfer.element_bytes && result.payload.size() == bytes;
}

void Engine::store(const Operation& operation, std::uint64_t slot, std::span<const std::byte> payload) {
  const Part<std::byte>& destination = operation.transfer.destination;
  const Fragment fragment = fragment_of(operation, slot);
  const std::size_t begin = std::max(fragment.begin, destination.begin);
  const std::size_t end = std::min(fragment.end, destination.end);
  if (begin < end)
    std::memcpy(destination.data + (begin - destination.begin), payload.data() + (begin - fragment.begin), end - begin);
}

Nanoseconds Engine::next_deadline() const {
  if (oldest_ == next_ || status_ != SHARP_COLL_SUCCESS || deadline_ == kNever) return kNever;
  // A slow link delays all results; each one restarts the timer, so that fragments which only wait are not repeated.
  // So do repeated results: fragments wait behind them.
  return std::max(deadline_, std::max(last_result_, last_progress_) + round_trip_.timeout(1));
}

void Engine::fail(int code) {
  if (status_ != SHARP_COLL_SUCCESS) return;
  status_ = code;
  for (Outstanding& fragment : outstanding_)
    if (const std::shared_ptr<Operation> operation = std::exchange(fragment.operation, nullptr))
      operation->status = code;
  for (const std::shared_ptr<Operation>& operation : unsent_) operation->status = code;
  unsent_.clear();
  unfinished_ = 0;
}

}  // namespace plugfest::sharp_coll
