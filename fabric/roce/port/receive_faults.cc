#include "fabric/roce/port/receive_faults.h"

#include "fabric/system/number.h"

#include <algorithm>
#include <utility>

namespace plugfest::roce {

void ReceiveFaults::handle(const ReceivedBatch& batch, Nanoseconds now) {
  if (!changes_packets()) {
    for (std::size_t index = 0, offset = 0; offset < batch.length; ++index, offset += batch.segment_bytes)
      deliver({batch.bytes + offset, std::min(batch.segment_bytes, batch.length - offset)}, index, batch.arrival, now);
    return;
  }
  PacketCopy copy = {batch.arrival, 0, batch.segment_bytes, {batch.bytes, batch.bytes + batch.length}};
  if (!faults_.delays_packets() && delayed_.empty()) return deliver_each(copy, now);
  const std::size_t packets = divide_up(batch.length, batch.segment_bytes);
  if (delayed_.push(std::move(copy), now + faults_.next_delay())) {
    counters_.delayed_packets += packets;
    arm_(delayed_.due());
  } else {
    counters_.fault_drops += packets;
  }
}

void ReceiveFaults::release_due(Nanoseconds now) {
  while (delayed_.due() <= now) deliver_each(delayed_.pop_front(), now);
}

void ReceiveFaults::deliver_each(const PacketCopy& batch, Nanoseconds now) {
  for (std::size_t index = 0, offset = 0; offset < batch.bytes.size(); ++index, offset += batch.segment_bytes) {
    const auto begin = batch.bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    const std::size_t length = std::min(batch.segment_bytes, batch.bytes.size() - offset);
    deliver_with_faults(
        {batch.arrival, batch.first_index + index, length, {begin, begin + static_cast<std::ptrdiff_t>(length)}}, now);
  }
}

void ReceiveFaults::deliver_with_faults(PacketCopy packet, Nanoseconds now) {
  const auto deliver_copy = [&](const PacketCopy& copy) { deliver(copy.bytes, copy.first_index, copy.arrival, now); };
  const FaultDecision decision = faults_.alters_packets() ? faults_.next() : FaultDecision{};
  if (decision.loss) {
    ++counters_.fault_drops;
    return;
  }
  const std::vector<PacketCopy> overtaken = held_.release(1);
  if (decision.corrupt) {
    corrupt(packet.bytes, decision.random);
    ++counters_.fault_corruptions;
  }
  if (decision.duplicate) {
    deliver_copy(packet);
    ++counters_.fault_duplicates;
  }
  if (decision.overtaken_by > 0) {
    held_.hold(std::move(packet), decision.overtaken_by);
    ++counters_.fault_reorders;
  } else {
    deliver_copy(packet);
  }
  for (const PacketCopy& earlier : overtaken) deliver_copy(earlier);
}

void ReceiveFaults::deliver(std::span<const std::byte> packet, std::size_t index, const Arrival& arrival,
                            Nanoseconds now) {
  if (log_ != nullptr) log(packet, index, arrival);
  sink_(packet, index, arrival, now);
}

// The kernel does not report the IPv4 identification; it follows from the ICRC.
void ReceiveFaults::log(std::span<const std::byte> packet, std::size_t index, const Arrival& arrival) {
  const Flow flow = {arrival.source.address, arrival.destination, arrival.source.port, kRoceUdpPort};
  WireHeaders headers = {.source = flow.source,
                         .destination = flow.destination,
                         .source_port = flow.source_port,
                         .destination_port = flow.destination_port,
                         .identification = static_cast<std::uint16_t>(index)};
  if (packet.size() >= kBthBytes + kIcrcBytes && packet.size() % 4 == 0) {
    const std::uint32_t difference = icrc_difference(flow, headers.identification, packet);
    headers.identification ^= identifications_.bits_for(difference, packet.size()).value_or(0);
  }
  log_->add_received(headers, packet);
}

}  // namespace plugfest::roce
