// The way of packets from the kernel to their queue pairs.
//
// Most go through a buffer. Those in the middle of a long message need not: the first header of what comes next is
// looked at, and if it goes on with a message, the whole batch is received straight into that message's memory. Where
// that was so several times, the next batch is received there without looking. What comes instead of what was foreseen
// is taken out again.
#include <algorithm>

#include "fabric/roce/engine/nic_engine.h"
#include "fabric/roce/qp/queue_pair_engine.h"

namespace plugfest::roce {

namespace {

// Fewer than that in a batch, and looking first costs more than it saves.
constexpr std::size_t kWorthLookingAt = 2;

// So often must a message have gone on when it was looked at.
constexpr int kOftenEnough = 3;

// One that has paused for longer may have been given up, and its memory may serve something else.
constexpr Nanoseconds kStillGoingOn = 1'000'000;

std::size_t full_packet_bytes(const QueuePairEngine& queue_pair) {
  return kBthBytes + queue_pair.path_mtu_bytes() + kIcrcBytes;
}

}  // namespace

bool NicEngine::receive_next(UdpPort& port, Nanoseconds now) {
  // Looking costs a system call: it is done where the packet before was not the last of its message.
  if (long_message_ && !arrivals_.meddle()) {
    if (going_on_.times >= kOftenEnough && now - going_on_.at < kStillGoingOn) {
      const std::optional<bool> received = receive_unseen(port, now);
      if (received) return *received;
    }
    ReceivedBatch coming;
    std::array<std::byte, kBthBytes> bth;
    if (!port.peek(bth, coming)) return false;
    const Landing landing = coming.length < bth.size() ? Landing{} : landing_for(coming, bth);
    if (landing.to != nullptr && landing.packets >= kWorthLookingAt) {
      ReceivedBatch batch;
      const std::span<iovec> parts = direct_.lay_out(coming.segment_bytes, landing, receive_buffer_.get());
      if (!port.receive(parts, batch)) return true;  // the program took its memory away: lost
      direct_.arrived(batch.length);
      Headers headers;
      decode_bare(direct_.bth(0), headers);
      const GoingOn before = going_on_;
      going_on_ = {headers.destination, traits_of(headers.operation).request, 1, now};
      if (going_on_.same_as(before)) going_on_.times += before.times;
      take_in_place(port, batch, now);
      return true;
    }
  }
  ReceivedBatch batch;
  if (!port.receive(receive_buffer_.get(), batch)) return false;
  receive_batch(port, batch, now);
  return true;
}

std::optional<bool> NicEngine::receive_unseen(UdpPort& port, Nanoseconds now) {
  const auto found = queue_pairs_.find(going_on_.queue_pair_number);
  if (found == queue_pairs_.end()) return std::nullopt;
  const QueuePairEngine& queue_pair = *found->second;
  const Landing landing = queue_pair.next_landing(going_on_.request);
  if (landing.to == nullptr || landing.packets < kWorthLookingAt) return std::nullopt;
  const std::size_t segment_bytes = full_packet_bytes(queue_pair);
  ReceivedBatch batch;
  if (!port.receive(direct_.lay_out(segment_bytes, landing, receive_buffer_.get()), batch)) return false;
  direct_.arrived(batch.length);
  const bool as_foreseen = batch.segment_bytes == segment_bytes && direct_.packets_in_place() > 0 &&
                           landing_for(batch, direct_.bth(0)).to == landing.to;
  if (as_foreseen) {
    going_on_.at = now;
    take_in_place(port, batch, now);
  } else {
    going_on_.times = 0;
    const std::span<const std::byte> all = direct_.gather(0);
    receive_batch(port, {all.data(), all.size(), batch.segment_bytes, batch.arrival}, now);
  }
  return true;
}

Landing NicEngine::landing_for(const ReceivedBatch& coming, std::span<const std::byte, kBthBytes> bth) const {
  Headers headers;
  if (!decode_bare(bth, headers)) return {};
  const auto found = queue_pairs_.find(headers.destination);
  if (found == queue_pairs_.end() || coming.segment_bytes != full_packet_bytes(*found->second)) return {};
  return found->second->landing_for(headers, coming.arrival);
}

void NicEngine::take_in_place(UdpPort& port, const ReceivedBatch& batch, Nanoseconds now) {
  const auto found = queue_pairs_.find(destination_of(direct_.bth(0).data()));
  std::size_t index = 0;
  for (Psn psn; index < direct_.packets_in_place(); ++index) {
    Packet packet = {.headers = {}, .payload = direct_.payload(index), .in_place = true};
    if (!decode_bare(direct_.bth(index), packet.headers)) break;
    if (index == 0) psn = packet.headers.psn;
    if (packet.headers.destination != found->first || packet.headers.psn != psn) break;
    if (!icrc_is_right(direct_.bth(index), packet.payload, direct_.icrc(index), index, batch.arrival)) break;
    ++counters_.received_packets;
    ++counters_.placed_packets;
    counters_.received_bytes += batch.segment_bytes;
    found->second->receive(packet, batch.arrival, now);
    psn = psn + 1;
  }
  // What is left is something else, another process's even, or damaged: it takes the usual way.
  const std::span<const std::byte> rest = direct_.gather(index);
  if (rest.empty()) return;
  receive_batch(port, {rest.data(), rest.size(), batch.segment_bytes, batch.arrival}, now, index);
}

void NicEngine::receive_packets(const ReceivedBatch& batch, std::size_t first_index, Nanoseconds now) {
  for (std::size_t index = first_index, offset = 0; offset < batch.length; ++index, offset += batch.segment_bytes)
    receive_packet({batch.bytes + offset, std::min(batch.segment_bytes, batch.length - offset)}, index, batch.arrival,
                   now);
}

bool NicEngine::icrc_is_right(std::span<const std::byte> bth, std::span<const std::byte> rest,
                              std::span<const std::byte, kIcrcBytes> icrc, std::size_t index, const Arrival& arrival) {
  const Flow flow = {arrival.source.address, arrival.destination, arrival.source.port, kRoceUdpPort};
  const std::size_t bytes = bth.size() + rest.size() + kIcrcBytes;
  // Segment i of a batch of ours has identification i, unless the kernel put batches together.
  std::uint32_t expected = start_icrc(flow, static_cast<std::uint16_t>(index), bytes, bth.data(), bth.size());
  expected = crc32(expected, rest.data(), rest.size());
  std::uint32_t received = 0;
  for (std::size_t i = 0; i < kIcrcBytes; ++i) received |= static_cast<std::uint32_t>(icrc[i]) << (8 * i);
  return expected == received ||
         (arrival.destination.is_ipv4() && identifications_.explains(expected ^ received, bytes));
}

bool NicEngine::icrc_is_right(std::span<const std::byte> bytes, std::size_t index, const Arrival& arrival) {
  if (bytes.size() < kBthBytes + kIcrcBytes || bytes.size() % 4 != 0) return false;
  return icrc_is_right(bytes.first(kBthBytes), bytes.subspan(kBthBytes, bytes.size() - kBthBytes - kIcrcBytes),
                       bytes.last<kIcrcBytes>(), index, arrival);
}

}  // namespace plugfest::roce
