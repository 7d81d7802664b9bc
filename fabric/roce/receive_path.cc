#include "fabric/roce/receive_path.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/roce/qp/queue_pair.h"

namespace plugfest::roce {
namespace {

// Batches received before answers are sent: about a quarter of the largest congestion window, so that the peer never
// has to wait.
constexpr int kBatchesPerRound = 4;

// Interval of checks for forwarded packets while the program polls.
constexpr Nanoseconds kForwardedInterval = 20'000;

// In batches with fewer packets, reading the header first costs more than receiving in place saves.
constexpr std::size_t kMinPacketsInPlace = 2;

// Batches of a message received in place before the next one is received without reading its header first.
constexpr int kBatchesBeforeNoPeek = 3;

// A message that has paused for longer may have ended by an error, and its memory may have another use.
constexpr Nanoseconds kMaxPause = 1'000'000;

std::size_t full_packet_bytes(const QueuePair& queue_pair) {
  return kBthBytes + queue_pair.path_mtu_bytes() + kIcrcBytes;
}

// Length of the packets at the front of the batch that belong to one process. The kernel merges packets of one sender
// even if they are for different processes.
std::size_t bytes_for_first_process(const ReceivedBatch& batch) {
  std::size_t end = batch.segment_bytes;
  for (; end + kBthBytes <= batch.length; end += batch.segment_bytes)
    if (slot_of(destination_of(batch.bytes + end)) != slot_of(destination_of(batch.bytes))) return end;
  return batch.length;
}

}  // namespace

ReceivePath::ReceivePath(Counters& counters, PortSet& ports, const QueuePairTable& queue_pairs, std::string_view device,
                         Timer& timer)
    : counters_(counters),
      ports_(ports),
      queue_pairs_(queue_pairs),
      faults_(
          counters, device, [this](auto&&... packet) { handle_packet(std::forward<decltype(packet)>(packet)...); },
          [&timer](Nanoseconds time) { timer.arm(time); }),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(UdpPort::kReceiveBytes)) {}

bool ReceivePath::receive(Nanoseconds now) {
  bool received = false;
  for (const auto& port : ports_.ports())
    for (int i = 0; i < kBatchesPerRound && receive_batch(*port, now); ++i) received = true;
  if (now - forwarded_checked_ >= kForwardedInterval) {
    forwarded_checked_ = now;
    receive_forwarded(now);
  }
  if (now >= faults_.due()) faults_.release_due(now);
  return received;
}

bool ReceivePath::receive_batch(UdpPort& port, Nanoseconds now) {
  // Reading the header first costs a system call, which only pays inside a READ: only its responses are received in
  // place.
  if (inside_read_ && !faults_.active()) {
    const bool predict = in_place_.batches >= kBatchesBeforeNoPeek && now - in_place_.last_at < kMaxPause;
    const std::optional<bool> received = predict ? receive_without_peek(port, now) : receive_after_peek(port, now);
    if (received) return *received;
  }
  ReceivedBatch batch;
  if (!port.receive(buffer_.get(), batch)) return false;
  handle_batch(port, batch, now);
  return true;
}

std::optional<bool> ReceivePath::receive_after_peek(UdpPort& port, Nanoseconds now) {
  ReceivedBatch next;
  std::array<std::byte, kBthBytes> bth;
  if (!port.peek(bth, next)) return false;
  const Placement placement = next.length < bth.size() ? Placement{} : placement_for(next, bth);
  if (placement.memory == nullptr || placement.packets < kMinPacketsInPlace) return std::nullopt;
  ReceivedBatch batch;
  const std::span<iovec> parts = direct_.prepare(next.segment_bytes, placement, buffer_.get());
  if (!port.receive(parts, batch)) {
    // The batch is lost, because the program has unmapped the memory. The repeated packets go through the buffer, which
    // finds the error.
    inside_read_ = false;
    return true;
  }
  direct_.set_length(batch.length);
  Headers headers;
  decode_bare(direct_.bth(0), headers);
  const InPlaceMessage before = in_place_;
  in_place_ = {headers.destination, 1, now};
  if (headers.destination == before.queue_pair_number) in_place_.batches += before.batches;
  handle_in_place(port, batch, now);
  return true;
}

std::optional<bool> ReceivePath::receive_without_peek(UdpPort& port, Nanoseconds now) {
  const QueuePair* const queue_pair = queue_pairs_.find(in_place_.queue_pair_number);
  const Placement placement = queue_pair == nullptr ? Placement{} : queue_pair->next_placement();
  if (placement.memory == nullptr) {
    in_place_.batches = 0;
    return std::nullopt;
  }
  if (placement.packets < kMinPacketsInPlace) return std::nullopt;
  const std::size_t segment_bytes = full_packet_bytes(*queue_pair);
  ReceivedBatch batch;
  if (!port.receive(direct_.prepare(segment_bytes, placement, buffer_.get()), batch)) return false;
  direct_.set_length(batch.length);
  const bool as_expected = batch.segment_bytes == segment_bytes && direct_.packets_in_place() > 0 &&
                           placement_for(batch, direct_.bth(0)).memory == placement.memory;
  if (as_expected) {
    in_place_.last_at = now;
    handle_in_place(port, batch, now);
  } else {
    in_place_.batches = 0;
    const std::span<const std::byte> all = direct_.gather(0);
    handle_batch(port, {all.data(), all.size(), batch.segment_bytes, batch.arrival}, now);
  }
  return true;
}

Placement ReceivePath::placement_for(const ReceivedBatch& batch, std::span<const std::byte, kBthBytes> bth) const {
  Headers headers;
  if (!decode_bare(bth, headers)) return {};
  const QueuePair* const queue_pair = queue_pairs_.find(headers.destination);
  if (queue_pair == nullptr || batch.segment_bytes != full_packet_bytes(*queue_pair)) return {};
  return queue_pair->placement_for(headers, batch.arrival);
}

void ReceivePath::handle_in_place(UdpPort& port, const ReceivedBatch& batch, Nanoseconds now) {
  const std::uint32_t number = destination_of(direct_.bth(0).data());
  QueuePair* const queue_pair = queue_pairs_.find(number);
  std::size_t index = 0;
  for (Psn psn; index < direct_.packets_in_place(); ++index) {
    Packet packet = {.headers = {}, .payload = direct_.payload(index), .in_place = true};
    if (!decode_bare(direct_.bth(index), packet.headers)) break;
    if (index == 0) psn = packet.headers.psn;
    if (packet.headers.destination != number || packet.headers.psn != psn) break;
    if (!icrc_.is_right(direct_.bth(index), packet.payload, direct_.icrc(index), index, batch.arrival)) break;
    ++counters_.received_packets;
    ++counters_.placed_packets;
    counters_.received_bytes += batch.segment_bytes;
    queue_pair->receive(packet, batch.arrival, now);
    psn = psn + 1;
  }
  // The remaining packets are damaged, or belong to something else, possibly to another process.
  const std::span<const std::byte> rest = direct_.gather(index);
  if (rest.empty()) return;
  handle_batch(port, {rest.data(), rest.size(), batch.segment_bytes, batch.arrival}, now, index);
}

void ReceivePath::handle_batch(UdpPort& port, const ReceivedBatch& batch, Nanoseconds now, std::size_t first_index) {
  if (batch.segment_bytes < kBthBytes + kIcrcBytes || batch.segment_bytes > kMaxPacketBytes) {
    ++counters_.received_packets;
    ++counters_.malformed_packets;
    return;
  }
  if (const std::size_t length = bytes_for_first_process(batch); length < batch.length) {
    ReceivedBatch part = batch;
    part.length = length;
    handle_batch(port, part, now, first_index);
    part.bytes += length;
    part.length = batch.length - length;
    return handle_batch(port, part, now, first_index + length / batch.segment_bytes);
  }
  const std::uint8_t owner = slot_of(destination_of(batch.bytes));
  const std::uint8_t own = ports_.slot().number();
  const std::span first(batch.bytes, std::min(batch.segment_bytes, batch.length));
  const bool from_group = port.address().is_multicast();  // the kernel has given the batch to all processes
  if (owner == PortMap::kProbeSlot && !from_group) return answer_probe(port, first);
  // A damaged packet is not forwarded: its queue pair number may be wrong. It is counted and dropped below.
  if (owner != own && !from_group && icrc_.is_right(first, first_index, batch.arrival)) {
    switch (ports_.slot().forward(owner, batch)) {
      case ProcessSlot::Forwarding::kDone:
        ++counters_.forwarded_packets;
        port.probe_sockets(own, now);
        break;
      case ProcessSlot::Forwarding::kNoSuchProcess:
        counters_.unknown_queue_pairs += (batch.length + batch.segment_bytes - 1) / batch.segment_bytes;
        break;
      case ProcessSlot::Forwarding::kQueueFull:
        ++counters_.forward_drops;
        break;
    }
    return;
  }
  if (faults_.active()) return faults_.handle(batch, now);
  for (std::size_t index = first_index, offset = 0; offset < batch.length; ++index, offset += batch.segment_bytes)
    handle_packet({batch.bytes + offset, std::min(batch.segment_bytes, batch.length - offset)}, index, batch.arrival,
                  now);
}

void ReceivePath::handle_packet(std::span<const std::byte> bytes, std::size_t index, const Arrival& arrival,
                                Nanoseconds now) {
  ++counters_.received_packets;
  counters_.received_bytes += bytes.size();
  // The ICRC is checked first because the headers of a damaged packet mean nothing.
  if (!icrc_.is_right(bytes, index, arrival)) {
    ++counters_.icrc_errors;
    return;
  }
  const std::optional<Packet> packet = decode(bytes);
  if (!packet) {
    ++counters_.malformed_packets;
    return;
  }
  if (packet->headers.destination == kMulticastNumber) return deliver_to_group(*packet, arrival, now);
  QueuePair* const queue_pair = queue_pairs_.find(packet->headers.destination);
  if (queue_pair == nullptr) {
    ++counters_.unknown_queue_pairs;
    return;
  }
  const OperationTraits& traits = traits_of(packet->headers.operation);
  if (traits.response) inside_read_ = !traits.last;
  queue_pair->receive(*packet, arrival, now);
}

void ReceivePath::deliver_to_group(const Packet& packet, const Arrival& arrival, Nanoseconds now) {
  const auto group = queue_pairs_.groups().find(arrival.destination);
  if (group == queue_pairs_.groups().end()) {
    ++counters_.unknown_queue_pairs;
    return;
  }
  for (QueuePair* const member : group->second)
    if (!member->blocks_own(packet, arrival)) member->receive(packet, arrival, now);
}

void ReceivePath::receive_forwarded(Nanoseconds now) {
  ReceivedBatch batch;
  for (int i = 0; i < kBatchesPerRound && ports_.slot().receive(buffer_.get(), batch); ++i) {
    expect_forwarded();  // more batches will follow
    for (const auto& port : ports_.ports()) {
      if (port->address() != batch.arrival.destination) continue;
      if (batch.segment_bytes > 0) {
        handle_batch(*port, batch, now);
      } else if (PortMap::Claim claim; batch.length == sizeof(claim)) {
        std::memcpy(&claim, batch.bytes, sizeof(claim));
        port->learn(claim);
      }
    }
  }
}

void ReceivePath::answer_probe(const UdpPort& port, std::span<const std::byte> packet) {
  const std::optional<PortMap::Probe> probe = PortMap::decode(packet);
  if (!probe) return;
  const PortMap::Claim claim = {probe->nonce, ports_.slot().number(), probe->number};
  // The answer is sent like a forwarded batch. A segment size of 0 distinguishes it from packets.
  ports_.slot().forward(probe->asker, {.bytes = reinterpret_cast<const std::byte*>(&claim),
                                       .length = sizeof(claim),
                                       .segment_bytes = 0,
                                       .arrival = {.source = {}, .destination = port.address()}});
}

}  // namespace plugfest::roce
