// Source of the rules: InfiniBand Architecture Specification vol. 1, sections 9.8 and 9.9.3 (classes of errors).
#include "fabric/roce/qp/unreliable.h"

#include <algorithm>
#include <cerrno>

#include "fabric/roce/memory/scatter_gather_list.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/system/number.h"

namespace plugfest::roce {

void UnreliableRequester::start(const Settings& settings) {
  post_psn_ = settings.first_psn;
  started_ = true;
}

void UnreliableRequester::reset() {
  while (!queue_.empty()) queue_.pop();
  next_ = sent_ = {queue_.oldest(), 0};
  started_ = paused_ = announce_drained_ = false;
  resume_at_ = kNever;
}

void UnreliableRequester::flush() {
  while (!queue_.empty()) complete_oldest(IBV_WC_WR_FLUSH_ERR);
  next_ = sent_ = {queue_.oldest(), 0};
  resume_at_ = kNever;
}

bool UnreliableRequester::supports(ibv_wr_opcode opcode) const {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM || opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV;
}

int UnreliableRequester::post(const ibv_send_wr& request) {
  if (!supports(request.opcode)) return EINVAL;
  const int error = queue_.prepare(request, signal_all_);
  if (error != 0) return error;
  SendRequest& kept = queue_[queue_.end()];
  const std::uint32_t mtu = connection_.path_mtu_bytes;
  kept.packets = kept.is_local() ? 0 : !started_ || kept.length == 0 ? 1 : divide_up(kept.length, mtu);
  kept.first = post_psn_;
  post_psn_ = kept.end();
  queue_.commit();
  return 0;
}

void UnreliableRequester::withdraw(std::uint64_t posted) {
  if (posted == queue_.end()) return;
  post_psn_ = queue_[posted].first;
  queue_.withdraw(posted);
}

const Path* UnreliableRequester::address(std::uint64_t /*number*/, const SendRequest& request, Headers& headers) {
  headers.destination = connection_.remote_number;
  headers.address = request.remote.address;
  headers.key = request.remote.key;
  headers.length = request.length;
  return &connection_.path;
}

// Fails a request, after the packets of earlier requests were sent. The queue pair enters the SQE state.
void UnreliableRequester::fail(std::uint64_t number, ibv_wc_status status) {
  const DataPath& nic = connection_.nic;
  if (nic.batch.flush()) {
    sent_ = next_;
    while (queue_.oldest() != number) complete_oldest(IBV_WC_SUCCESS);
    complete_oldest(status);
    connection_.queue_pair.enter_send_error();
  } else {
    restart_batch();
    nic.scheduler.wait_for_room(connection_.queue_pair);
  }
}

// Builds as many packets of a message as the rate limit allows. False if no more can be built now.
bool UnreliableRequester::send_message(std::uint64_t number, Nanoseconds now) {
  const DataPath& nic = connection_.nic;
  SendRequest& request = queue_[number];
  if (request.is_local()) {
    const ibv_wc_status status = execute_locally(request);
    if (status == IBV_WC_SUCCESS)
      next_ = {number + 1, 0};
    else
      fail(number, status);
    return status == IBV_WC_SUCCESS;
  }
  ScatterGatherList pieces;
  if (!find_memory(number, request, pieces)) {
    fail(number, IBV_WC_LOC_PROT_ERR);
    return false;
  }
  const std::size_t mtu = connection_.path_mtu_bytes;
  for (std::uint32_t packet = next_.packet; packet < request.packets; ++packet) {
    if (!nic.ports.rate_limiter().may_send(now)) {
      resume_at_ = nic.ports.rate_limiter().resume_at();
      nic.scheduler.call_at(connection_.queue_pair, resume_at_);
      return false;
    }
    const bool last = packet + 1 == request.packets;
    const std::size_t offset = packet * mtu;
    const std::size_t bytes = std::min(mtu, request.length - offset);
    Headers headers;
    headers.transport = connection_.transport;
    headers.operation = operation_of(request.opcode, packet == 0, last);
    headers.psn = request.first + packet;
    headers.solicited = last && request.solicited;
    headers.immediate = request.immediate;
    iovec parts[kMaxSegments];
    const std::size_t count = pieces.slice(offset, bytes, parts);
    const Path* const path = address(number, request, headers);
    if (path == nullptr || !nic.batch.add(*path, headers, {parts, count}, bytes)) {
      if (path != nullptr && nic.batch.unreadable()) {
        fail(number, IBV_WC_LOC_PROT_ERR);
        return false;
      }
      restart_batch();
      nic.scheduler.wait_for_room(connection_.queue_pair);
      return false;
    }
    if (nic.batch.begun()) sent_ = next_;
    nic.ports.rate_limiter().sent(bytes + kMaxHeaderBytes, now);
    next_ = last ? PacketPosition{number + 1, 0} : PacketPosition{number, packet + 1};
  }
  return true;
}

void UnreliableRequester::transmit(Nanoseconds now) {
  if (!started_) return;
  const DataPath& nic = connection_.nic;
  resume_at_ = kNever;
  while (next_.request != queue_.end() && !(paused_ && next_.packet == 0))
    if (!send_message(next_.request, now)) break;
  if (nic.batch.flush()) {
    sent_ = next_;
  } else {
    restart_batch();
    nic.scheduler.wait_for_room(connection_.queue_pair);
  }
  while (queue_.oldest() < sent_.request) complete_oldest(IBV_WC_SUCCESS);
  announce_if_drained();
}

void UnreliableResponder::start(const Settings& settings) {
  Responder::start(settings);
  message_.kind = IncomingMessage::Kind::kNone;
}

// Whether the packet begins a message or continues the current one. A first packet is always accepted, whatever its
// PSN.
bool UnreliableResponder::follows(const Packet& packet, const OperationTraits& traits) {
  const bool in_sequence = packet.headers.psn == expected_;
  expected_ = packet.headers.psn + 1;
  const std::size_t mtu = connection_.path_mtu_bytes;
  const std::size_t bytes = packet.payload.size();
  const bool right_length = !traits.last ? bytes == mtu : bytes <= mtu && (traits.first || bytes > 0);
  const IncomingMessage::Kind kind = traits.send ? IncomingMessage::Kind::kSend : IncomingMessage::Kind::kWrite;
  if (!right_length || (!traits.first && (!in_sequence || message_.kind != kind))) return false;
  if (!traits.first) return true;
  if (message_.kind != IncomingMessage::Kind::kNone)
    ++connection_.nic.counters.dropped_messages;  // the previous message is incomplete
  message_.kind = kind;
  message_.received_bytes = 0;
  return true;
}

void UnreliableResponder::receive(const Packet& packet, const Arrival& /*arrival*/) {
  if (!started_) return;
  const OperationTraits& traits = traits_of(packet.headers.operation);
  if (!follows(packet, traits) || !(traits.send ? place_send(packet) : place_write(packet, traits))) {
    // Each message is counted once, at its first packet that cannot be placed.
    if (message_.kind != IncomingMessage::Kind::kNone || traits.first) ++connection_.nic.counters.dropped_messages;
    message_.kind = IncomingMessage::Kind::kNone;
    return;
  }
  if (traits.send) message_.received_bytes += packet.payload.size();
  if (traits.last) complete(packet, traits);
}

// A receive that a dropped message has taken is used for the next message.
bool UnreliableResponder::place_send(const Packet& packet) {
  if (!take_receive() || message_.received_bytes + packet.payload.size() > room_in_receive()) return false;
  if (place(message_.received_bytes, packet.payload)) return true;
  ibv_wc completion = {};
  completion.status = IBV_WC_LOC_PROT_ERR;
  completion.opcode = IBV_WC_RECV;
  complete_receive(completion, true);
  connection_.queue_pair.enter_error();
  return false;
}

bool UnreliableResponder::place_write(const Packet& packet, const OperationTraits& traits) {
  const std::size_t bytes = packet.payload.size();
  if (traits.first) message_.begin_write(packet.headers);
  if (traits.last ? bytes != message_.write_left : bytes >= message_.write_left) return false;
  if (traits.has_immediate && !take_receive()) return false;
  if (bytes > 0) {
    // The whole rest is checked, so that a message that does not fit is dropped at its first packet.
    std::byte* const to =
        remote_memory(message_.write_address, message_.write_key, message_.write_left, IBV_ACCESS_REMOTE_WRITE);
    if (to == nullptr) return false;
    if (!place_in_order(to, packet.payload)) return false;
  }
  message_.advance_write(bytes);
  return true;
}

void UnreliableResponder::complete(const Packet& packet, const OperationTraits& traits) {
  message_.kind = IncomingMessage::Kind::kNone;
  if (traits.write && !traits.has_immediate) return;
  complete_message(packet, traits, message_.received_bytes);
}

}  // namespace plugfest::roce
