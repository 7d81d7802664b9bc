// Cuts batches into packets, and lets faults happen to them.
#include "fabric/roce/port/arrivals.h"

#include <algorithm>
#include <utility>

#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

void Arrivals::take(const ReceivedBatch& batch, Nanoseconds now) {
  if (!changes_packets()) {
    for (std::size_t index = 0, offset = 0; offset < batch.length; ++index, offset += batch.segment_bytes)
      give_now({batch.bytes + offset, std::min(batch.segment_bytes, batch.length - offset)}, index, batch.arrival, now);
    return;
  }
  Parcel parcel = {batch.arrival, 0, batch.segment_bytes, {batch.bytes, batch.bytes + batch.length}};
  if (!faults_.delays_packets() && delayed_.empty()) return give(parcel, now);
  const std::size_t packets = (batch.length + batch.segment_bytes - 1) / batch.segment_bytes;
  if (delayed_.push(std::move(parcel), now + faults_.next_delay())) {
    counters_.delayed_packets += packets;
    arm_(delayed_.due());
  } else {
    counters_.fault_drops += packets;
  }
}

void Arrivals::take_due(Nanoseconds now) {
  while (delayed_.due() <= now) {
    Parcel parcel = delayed_.pop_front();
    give(parcel, now);
  }
}

void Arrivals::give(Parcel& parcel, Nanoseconds now) {
  for (std::size_t index = 0, offset = 0; offset < parcel.bytes.size(); ++index, offset += parcel.segment_bytes) {
    const auto begin = parcel.bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    const std::size_t length = std::min(parcel.segment_bytes, parcel.bytes.size() - offset);
    Parcel packet = {
        parcel.arrival, parcel.first_index + index, length, {begin, begin + static_cast<std::ptrdiff_t>(length)}};
    give_with_faults(packet, now);
  }
}

void Arrivals::give_with_faults(Parcel& packet, Nanoseconds now) {
  const auto give = [&](const Parcel& one) { give_now(one.bytes, one.first_index, one.arrival, now); };
  const FaultDecision decision = faults_.alters_packets() ? faults_.next() : FaultDecision{};
  if (decision.drop) {
    ++counters_.fault_drops;
    return;
  }
  const std::vector<Parcel> overtaken = held_.release(1);
  if (decision.corrupt) {
    corrupt(packet.bytes, decision.random);
    ++counters_.fault_corruptions;
  }
  if (decision.duplicate) {
    give(packet);
    ++counters_.fault_duplicates;
  }
  if (decision.overtaken_by > 0) {
    held_.hold(std::move(packet), decision.overtaken_by);
    ++counters_.fault_reorders;
  } else {
    give(packet);
  }
  for (const Parcel& earlier : overtaken) give(earlier);
}

void Arrivals::give_now(std::span<const std::byte> packet, std::size_t index, const Arrival& arrival, Nanoseconds now) {
  if (log_ != nullptr) log(packet, index, arrival);
  sink_(packet, index, arrival, now);
}

// The kernel does not tell the IPv4 identification; the ICRC does.
void Arrivals::log(std::span<const std::byte> packet, std::size_t index, const Arrival& arrival) {
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
