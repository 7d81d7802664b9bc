// The way of packets from the kernel to their queue pairs.
//
// Most go through a buffer. Those in the middle of a long message need not: the first header of what comes next is
// looked at, and if it goes on with a message, the whole batch is received straight into that message's memory.
#include <algorithm>

#include "fabric/roce/nic_engine.h"
#include "fabric/roce/queue_pair_engine.h"

namespace plugfest::roce {

namespace {

// Fewer than that in a batch, and looking first costs more than it saves.
constexpr std::size_t kWorthLookingAt = 2;

}  // namespace

bool NicEngine::receive_next(UdpPort& port, Nanoseconds now) {
  // Looking costs a system call: it is done where the packet before was not the last of its message.
  if (long_message_ && !arrivals_.meddle()) {
    ReceivedBatch coming;
    std::array<std::byte, kBthBytes> bth;
    if (!port.peek(bth, coming)) return false;
    const Landing landing = coming.length < bth.size() ? Landing{} : landing_for(coming, bth);
    if (landing.to != nullptr && landing.packets >= kWorthLookingAt) {
      receive_in_place(port, coming, landing, now);
      return true;
    }
  }
  ReceivedBatch batch;
  if (!port.receive(receive_buffer_.get(), batch)) return false;
  receive_batch(port, batch, now);
  return true;
}

Landing NicEngine::landing_for(const ReceivedBatch& coming, std::span<const std::byte, kBthBytes> bth) const {
  Headers headers;
  if (!decode_bare(bth, headers)) return {};
  const auto found = queue_pairs_.find(headers.destination);
  if (found == queue_pairs_.end() || coming.segment_bytes != kBthBytes + found->second->path_mtu_bytes() + kIcrcBytes)
    return {};
  return found->second->landing_for(headers, coming.arrival);
}

void NicEngine::receive_in_place(UdpPort& port, const ReceivedBatch& coming, Landing landing, Nanoseconds now) {
  const std::span<iovec> parts = direct_.lay_out(coming, landing, receive_buffer_.get());
  if (port.receive(parts) != coming.length) return;  // the program took its memory away: lost
  const auto found = queue_pairs_.find(destination_of(direct_.bth(0).data()));
  std::size_t index = 0;
  for (Psn psn; index < direct_.packets_in_place(); ++index) {
    Packet packet = {.headers = {}, .payload = direct_.payload(index)};
    if (!decode_bare(direct_.bth(index), packet.headers)) break;
    if (index == 0) psn = packet.headers.psn;
    if (packet.headers.destination != found->first || packet.headers.psn != psn) break;
    if (!icrc_is_right(direct_.bth(index), packet.payload, direct_.icrc(index), index, coming.arrival)) break;
    ++counters_.received_packets;
    ++counters_.placed_packets;
    counters_.received_bytes += coming.segment_bytes;
    found->second->receive(packet, coming.arrival, now);
    psn = psn + 1;
  }
  // What is left is something else, another process's even, or damaged: it takes the usual way.
  const std::span<const std::byte> rest = direct_.gather(index);
  if (rest.empty()) return;
  receive_batch(port, {rest.data(), rest.size(), coming.segment_bytes, coming.arrival}, now, index);
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
