// What a reliable requester receives: acknowledgements, NAKs, and responses to READs and atomics.
// Source of the rules: InfiniBand Architecture Specification vol. 1, section 9.7.
#include <algorithm>

#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/reliable_requester.h"

namespace plugfest::roce {

void ReliableRequester::set_oldest(PacketPosition position, Nanoseconds now) {
  const Psn psn = psn_at(position);
  oldest_ = position;
  if (psn == oldest_psn_) return;
  oldest_psn_ = psn;
  // Packets that were about to be sent again may have arrived after all.
  if (next_.request < oldest_.request || (next_.request == oldest_.request && next_.packet < oldest_.packet)) {
    next_ = oldest_;
    failure_.reset();
  }
  while (!reads_.empty() && reads_.front().after(psn) <= 0) reads_.pop_front();
  recovery_.forget_gap();
  timer_.reset_retries();
  restart_timers(now);
  announce_if_drained();
}

void ReliableRequester::acknowledge_before(Psn psn, Nanoseconds now) {
  const std::uint64_t cost_before = cost_at(oldest_);
  PacketPosition position = oldest_;
  bool response_missing = false;
  while (position.request != queue_.end()) {
    const SendRequest& request = queue_[position.request];
    if (request.done) {
      position = {position.request + 1, 0};
      continue;
    }
    const std::int32_t acknowledged = psn.after(request.first);
    if (acknowledged <= static_cast<std::int32_t>(position.packet)) break;
    if (request.awaits_response()) {
      response_missing = true;
      break;
    }
    if (acknowledged < static_cast<std::int32_t>(request.packets)) {
      position.packet = static_cast<std::uint32_t>(acknowledged);
      break;
    }
    position = {position.request + 1, 0};
  }
  const std::uint64_t cost_after = cost_at(position);
  while (queue_.oldest() != position.request) complete_oldest(IBV_WC_SUCCESS);
  if (cost_after > cost_before) window_.on_acknowledgement(cost_after - cost_before);
  set_oldest(position, now);
  if (response_missing && recovery_.note_gap(oldest_psn_)) {
    on_loss();
    go_back(oldest_psn_);
  }
}

void ReliableRequester::receive(const Packet& packet, Nanoseconds now) {
  if (!started_) return;
  const Psn psn = packet.headers.psn;
  if (psn.after(oldest_psn_) < 0 || psn.after(sent_end_) >= 0) return;  // stale, or for a packet that was never sent
  answered_ = true;
  if (packet.headers.operation != Operation::kAcknowledge)
    receive_response(packet, now);
  else if ((packet.headers.syndrome & kSyndromeKindMask) == 0)
    acknowledge_before(psn + 1, now);
  else
    receive_nak(packet, now);
}

void ReliableRequester::receive_response(const Packet& packet, Nanoseconds now) {
  const Psn psn = packet.headers.psn;
  acknowledge_before(psn, now);
  if (queue_.empty() || psn != oldest_psn_) return;  // an earlier response is missing and was requested again
  SendRequest& request = queue_[oldest_.request];
  const bool atomic = packet.headers.operation == Operation::kAtomicAcknowledge;
  if (atomic ? !request.is_atomic() : !request.is_read()) return fail_oldest(IBV_WC_BAD_RESP_ERR);

  const std::uint64_t original = packet.headers.original;
  std::span<const std::byte> bytes = packet.payload;
  std::size_t offset = 0;
  if (atomic) {
    bytes = std::as_bytes(std::span(&original, 1));
  } else {
    offset = std::size_t{oldest_.packet} * connection_.path_mtu_bytes;
    if (bytes.size() != std::min<std::size_t>(connection_.path_mtu_bytes, request.length - offset))
      return fail_oldest(IBV_WC_BAD_RESP_ERR);
  }
  if (!packet.in_place) {
    ScatterGatherList pieces;
    if (!find_memory(oldest_.request, request, pieces) || !pieces.copy_in(offset, bytes))
      return fail_oldest(IBV_WC_LOC_PROT_ERR);
  }
  const std::uint64_t cost_before = cost_at(oldest_);
  PacketPosition position = {oldest_.request, oldest_.packet + 1};
  if (position.packet == request.packets) {
    position = {oldest_.request + 1, 0};
    while (position.request != queue_.end() && queue_[position.request].done) ++position.request;
  }
  window_.on_acknowledgement(cost_at(position) - cost_before);
  while (queue_.oldest() != position.request) complete_oldest(IBV_WC_SUCCESS);
  set_oldest(position, now);
}

Placement ReliableRequester::placement_for(const Headers& headers) const {
  if (headers.psn != oldest_psn_ || headers.operation != Operation::kReadResponseMiddle) return {};
  return next_placement();
}

Placement ReliableRequester::next_placement() const {
  if (!started_ || queue_.empty() || oldest_psn_.after(sent_end_) >= 0) return {};
  const SendRequest& request = queue_[oldest_.request];
  ScatterGatherList pieces;
  if (!request.is_read() || !find_memory(oldest_.request, request, pieces)) return {};
  const std::size_t mtu = connection_.path_mtu_bytes;
  const std::span<std::byte> room = pieces.contiguous_from(std::size_t{oldest_.packet} * mtu);
  // The first and the last packet of the response to a READ request have longer headers.
  const std::uint32_t begin = oldest_.packet / request.read_packets * request.read_packets;
  const std::uint32_t last = std::min(request.packets, begin + request.read_packets) - 1;
  return {room.data(), oldest_.packet == begin ? 0 : std::min<std::size_t>(room.size() / mtu, last - oldest_.packet)};
}

void ReliableRequester::receive_nak(const Packet& packet, Nanoseconds now) {
  const Psn psn = packet.headers.psn;
  Counters& counters = connection_.nic.counters;
  acknowledge_before(psn, now);
  if (queue_.empty() || psn != oldest_psn_) return;
  const auto value = static_cast<std::uint8_t>(packet.headers.syndrome & kSyndromeValueMask);
  const int kind = packet.headers.syndrome & kSyndromeKindMask;
  if (kind == kSyndromeRnr) return receive_rnr_nak(psn, value, now);
  if (kind != kSyndromeNak) return;
  switch (static_cast<NakCode>(value)) {
    case NakCode::kSequence:
      return receive_sequence_nak(psn, now);
    case NakCode::kInvalidRequest:
      ++counters.received_invalid_request_naks;
      return fail_oldest(IBV_WC_REM_INV_REQ_ERR);
    case NakCode::kRemoteAccess:
      ++counters.received_access_naks;
      return fail_oldest(IBV_WC_REM_ACCESS_ERR);
    case NakCode::kRemoteOperation:
      ++counters.received_operation_naks;
      return fail_oldest(IBV_WC_REM_OP_ERR);
  }
}

void ReliableRequester::receive_rnr_nak(Psn psn, std::uint8_t timer_code, Nanoseconds now) {
  ++connection_.nic.counters.received_rnr_naks;
  if (!timer_.start_rnr_wait(now, rnr_delay_ns(timer_code))) return fail_oldest(IBV_WC_RNR_RETRY_EXC_ERR);
  go_back(psn);
  restart_timers(now);
}

void ReliableRequester::receive_sequence_nak(Psn psn, Nanoseconds now) {
  ++connection_.nic.counters.received_sequence_naks;
  // The peer may send several NAKs for one gap before it receives the repetition. They neither count as retries nor
  // cause further repetitions. If the repetition is also lost, the probe finds the gap.
  if (!recovery_.note_nak(psn, now)) return;
  on_loss();
  go_back(psn);
  timer_.postpone_probe(now);  // the timeout keeps running: it ends a peer that only sends NAKs
  connection_.nic.scheduler.call_at(connection_.queue_pair, deadline());
}

}  // namespace plugfest::roce
