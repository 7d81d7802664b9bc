// Source of the rules: InfiniBand Architecture Specification vol. 1, section 9.7.
#include <algorithm>
#include <atomic>
#include <optional>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/memory/scatter_gather_list.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/reliable_responder.h"
#include "fabric/system/number.h"

namespace plugfest::roce {

void ReliableResponder::start(const Settings& settings) {
  Responder::start(settings);
  message_count_ = 0;
  set_reads_in_flight(settings.reads_in_flight);
}

void ReliableResponder::set_reads_in_flight(unsigned reads) {
  Responder::set_reads_in_flight(reads);
  responses_.set_capacity(reads);
  atomic_results_.set_capacity(reads);
}

void ReliableResponder::reset(bool shared_receives) {
  Responder::reset(shared_receives);
  ack_due_ = nak_sent_ = false;
  message_.kind = IncomingMessage::Kind::kNone;
  responses_.clear();
  atomic_results_.clear();
}

void ReliableResponder::flush(bool shared_receives) {
  forget_receive_of_destroyed_queue();
  Responder::flush(shared_receives);
  ack_due_ = false;
  responses_.clear();
}

void ReliableResponder::receive(const Packet& packet, const Arrival& /*arrival*/) {
  if (!started_) return;
  const bool has_queue = use_queue_of(packet.headers);
  const std::int32_t distance = packet.headers.psn.after(expected_);
  if (distance > 0) {
    ++connection_.nic.counters.out_of_sequence;
    return nak_sequence(packet.headers.psn);
  }
  if (distance < 0) return receive_duplicate(packet);
  nak_sent_ = false;
  if (!has_queue) return refuse(NakCode::kInvalidRequest, packet.headers.psn, IBV_WC_LOC_QP_OP_ERR);

  const OperationTraits& traits = traits_of(packet.headers.operation);
  const bool begins = message_.kind == IncomingMessage::Kind::kNone;
  const bool continues = (message_.kind == IncomingMessage::Kind::kSend && traits.send) ||
                         (message_.kind == IncomingMessage::Kind::kWrite && traits.write);
  if (traits.first != begins || (!begins && !continues))
    return refuse(NakCode::kInvalidRequest, packet.headers.psn, IBV_WC_LOC_QP_OP_ERR);
  const std::size_t mtu = connection_.path_mtu_bytes;
  const std::size_t bytes = packet.payload.size();
  const bool right_length = !traits.last ? bytes == mtu : traits.first ? bytes <= mtu : bytes > 0 && bytes <= mtu;
  if (!right_length) return refuse(NakCode::kInvalidRequest, packet.headers.psn, IBV_WC_LOC_LEN_ERR);

  if (traits.send) return receive_send(packet, traits);
  if (traits.write) return receive_write(packet, traits);
  if (traits.atomic) return receive_atomic(packet);
  receive_read(packet, false);
}

void ReliableResponder::accept(const Packet& packet, const OperationTraits& traits, std::uint32_t packets) {
  expected_ = expected_ + packets;
  if (traits.last) message_count_ = (message_count_ + 1) & 0xffffff;
  if (packet.headers.ack_request) ack_due_ = true;
}

// Sends the responses to earlier requests. False if the kernel has no room for all of them, or if the queue pair has
// entered the error state; then the packet at hand is dropped, and the peer will repeat it.
bool ReliableResponder::answer_earlier() {
  if (!responses_.empty()) respond();
  return responses_.empty() && connection_.queue_pair.state() != IBV_QPS_ERR;
}

// Takes a receive for the message. If none is posted, sends an RNR NAK.
bool ReliableResponder::take_receive_or_nak(const Packet& packet) {
  if (take_receive()) return true;
  // A NAK that overtakes a response looks to the peer like a lost response.
  if (!answer_earlier()) return false;
  ++connection_.nic.counters.sent_rnr_naks;
  nak_sent_ = true;
  ahead_ = packet.headers.psn;
  send_ack(static_cast<std::uint8_t>(kSyndromeRnr | settings_.rnr_timer), packet.headers.psn);
  return false;
}

// Executes the invalidation of a SEND with invalidate. Earlier requests must have been answered before.
bool ReliableResponder::invalidate(std::uint32_t key) {
  MemoryWindow* const window = connection_.nic.memory.window_at(key);
  return window != nullptr && window->invalidate(key, connection_.number);
}

void ReliableResponder::receive_send(const Packet& packet, const OperationTraits& traits) {
  if (traits.has_invalidate && !answer_earlier()) return;
  if (!take_receive_or_nak(packet)) return;
  if (traits.first) message_.received_bytes = 0;
  if (message_.received_bytes + packet.payload.size() > room_in_receive())
    return refuse(NakCode::kInvalidRequest, packet.headers.psn, IBV_WC_LOC_LEN_ERR);
  if (!place(message_.received_bytes, packet.payload))
    return refuse(NakCode::kRemoteOperation, packet.headers.psn, IBV_WC_LOC_PROT_ERR);
  if (traits.has_invalidate && !invalidate(packet.headers.key))
    return refuse(NakCode::kRemoteAccess, packet.headers.psn, IBV_WC_REM_INV_REQ_ERR);
  message_.received_bytes += packet.payload.size();
  message_.kind = traits.last ? IncomingMessage::Kind::kNone : IncomingMessage::Kind::kSend;
  accept(packet, traits, 1);
  if (traits.last) complete_message(packet, traits, message_.received_bytes);
}

void ReliableResponder::receive_write(const Packet& packet, const OperationTraits& traits) {
  const std::size_t bytes = packet.payload.size();
  if (traits.first) {
    message_.begin_write(packet.headers);
    if (message_.write_left > 0 && remote_memory(message_.write_address, message_.write_key, message_.write_left,
                                                 IBV_ACCESS_REMOTE_WRITE) == nullptr)
      return refuse(NakCode::kRemoteAccess, packet.headers.psn, IBV_WC_LOC_ACCESS_ERR);
  }
  if (traits.last ? bytes != message_.write_left : bytes >= message_.write_left)
    return refuse(NakCode::kInvalidRequest, packet.headers.psn, IBV_WC_LOC_LEN_ERR);
  if (traits.has_immediate && !take_receive_or_nak(packet)) return;
  if (bytes > 0) {
    // The memory is looked up for each packet: the region may have been deregistered since the first one.
    std::byte* const to = remote_memory(message_.write_address, message_.write_key, bytes, IBV_ACCESS_REMOTE_WRITE);
    if (to == nullptr) return refuse(NakCode::kRemoteAccess, packet.headers.psn, IBV_WC_LOC_ACCESS_ERR);
    if (!place_in_order(to, packet.payload))
      return refuse(NakCode::kRemoteOperation, packet.headers.psn, IBV_WC_LOC_PROT_ERR);
  }
  message_.advance_write(bytes);
  message_.kind = traits.last ? IncomingMessage::Kind::kNone : IncomingMessage::Kind::kWrite;
  accept(packet, traits, 1);
  if (traits.has_immediate) complete_message(packet, traits, message_.received_bytes);
}

void ReliableResponder::receive_read(const Packet& packet, bool duplicate) {
  const Headers& headers = packet.headers;
  if (headers.length > kMaxMessageBytes || (settings_.reads_in_flight == 0 && !duplicate))
    return refuse(NakCode::kInvalidRequest, headers.psn, IBV_WC_LOC_LEN_ERR);
  const std::uint32_t mtu = connection_.path_mtu_bytes;
  const std::uint32_t packets = headers.length == 0 ? 1 : divide_up(headers.length, mtu);
  // A repeated READ cannot exceed the original one.
  if (duplicate && (headers.psn + packets).after(expected_) > 0) return;
  if (headers.length > 0 &&
      remote_memory(headers.address, headers.key, headers.length, IBV_ACCESS_REMOTE_READ) == nullptr) {
    if (duplicate) return;  // the region may have been deregistered since the first response
    return refuse(NakCode::kRemoteAccess, headers.psn, IBV_WC_LOC_ACCESS_ERR);
  }
  if (responses_.full()) return;  // more READs than agreed: the peer will repeat this one
  if (!duplicate) accept(packet, traits_of(headers.operation), packets);
  ack_due_ = false;  // the response acknowledges earlier requests
  // If the memory changes between the computation of the ICRC and the send call, the peer drops the packet. Copying
  // avoids that; a long READ is copied only when it is repeated.
  const bool copies = duplicate || packets == 1;
  responses_.push({.first = headers.psn,
                   .packets = packets,
                   .address = headers.address,
                   .key = headers.key,
                   .length = headers.length,
                   .copies = copies,
                   .domain = domain_,
                   .message_count = message_count_});
}

void ReliableResponder::receive_atomic(const Packet& packet) {
  const Headers& headers = packet.headers;
  if (settings_.reads_in_flight == 0 || headers.address % sizeof(std::uint64_t) != 0)
    return refuse(NakCode::kInvalidRequest, headers.psn, IBV_WC_LOC_QP_OP_ERR);
  std::byte* const at = remote_memory(headers.address, headers.key, sizeof(std::uint64_t), IBV_ACCESS_REMOTE_ATOMIC);
  if (at == nullptr || reinterpret_cast<std::uintptr_t>(at) % sizeof(std::uint64_t) != 0)
    return refuse(NakCode::kRemoteAccess, headers.psn, IBV_WC_LOC_ACCESS_ERR);
  if (responses_.full()) return;
  std::uint64_t original = headers.compare;
  const bool executed = guarded({at, sizeof(std::uint64_t)}, [&] {
    std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(at));
    if (headers.operation == Operation::kFetchAdd)
      original = word.fetch_add(headers.swap_or_add);
    else
      word.compare_exchange_strong(original, headers.swap_or_add);
  });
  if (!executed) return refuse(NakCode::kRemoteOperation, headers.psn, IBV_WC_LOC_PROT_ERR);
  accept(packet, traits_of(headers.operation), 1);
  ack_due_ = false;
  atomic_results_.push(headers.psn, original);
  respond_to_atomic(headers.psn, original);
}

void ReliableResponder::respond_to_atomic(Psn psn, std::uint64_t original) {
  responses_.push({.atomic = true, .first = psn, .original = original, .message_count = message_count_});
}

void ReliableResponder::receive_duplicate(const Packet& packet) {
  ++connection_.nic.counters.duplicate_requests;
  const Headers& headers = packet.headers;
  const OperationTraits& traits = traits_of(headers.operation);
  if (headers.operation == Operation::kReadRequest) return receive_read(packet, true);
  if (!traits.atomic) {
    ack_due_ = true;  // even during a gap: the NAK may have been lost
    // A duplicate of the packet before the gap means that the peer has started to repeat.
    if (nak_sent_ && headers.psn == expected_.previous()) ahead_ = expected_;
    return;
  }
  const std::optional<std::uint64_t> original = atomic_results_.find(headers.psn);
  if (original && !responses_.full()) respond_to_atomic(headers.psn, *original);
}

Headers ReliableResponder::acknowledgement(std::uint8_t syndrome, Psn psn) const {
  Headers headers;
  headers.transport = connection_.transport;
  headers.operation = Operation::kAcknowledge;
  headers.destination = connection_.remote_number;
  headers.psn = psn;
  headers.syndrome = syndrome;
  headers.message_count = message_count_;
  return headers;
}

bool ReliableResponder::piggyback_acknowledgement() {
  PacketBatch& batch = connection_.nic.batch;
  const std::size_t bytes = header_bytes(connection_.transport, Operation::kAcknowledge) + kIcrcBytes;
  if (!only_acknowledgement_due() || !batch.can_append(connection_.path, bytes)) return false;
  ack_due_ = false;
  return batch.add(connection_.path, acknowledgement(kSyndromeAck, expected_.previous()), {}, 0);
}

void ReliableResponder::send_ack(std::uint8_t syndrome, Psn psn) {
  ack_due_ = false;  // a NAK also acknowledges earlier requests
  PacketBatch& batch = connection_.nic.batch;
  if (!batch.add(connection_.path, acknowledgement(syndrome, psn), {}, 0) || !batch.flush()) {
    ack_due_ = (syndrome & kSyndromeKindMask) == 0;
    connection_.nic.scheduler.wait_for_room(connection_.queue_pair);
  }
}

void ReliableResponder::nak(NakCode code, Psn psn) {
  Counters& counters = connection_.nic.counters;
  switch (code) {
    case NakCode::kSequence:
      ++counters.sent_sequence_naks;
      break;
    case NakCode::kInvalidRequest:
      ++counters.sent_invalid_request_naks;
      break;
    case NakCode::kRemoteAccess:
      ++counters.sent_access_naks;
      break;
    case NakCode::kRemoteOperation:
      ++counters.sent_operation_naks;
      break;
  }
  send_ack(static_cast<std::uint8_t>(kSyndromeNak | static_cast<std::uint8_t>(code)), psn);
}

// Sends one NAK for a gap. A packet that is not further ahead than earlier ones shows that the peer has repeated
// packets and that the first of them was lost again. In this case, sends another NAK.
void ReliableResponder::nak_sequence(Psn psn) {
  if (nak_sent_ && psn.after(ahead_) > 0) {
    ahead_ = psn;
    return;
  }
  // Responses to requests before the gap come first. If one fails, its NAK is the last packet.
  respond();
  if (connection_.queue_pair.state() == IBV_QPS_ERR) return;
  nak_sent_ = true;
  ahead_ = psn;
  if (!ack_due_ && responses_.empty()) nak(NakCode::kSequence, expected_);
}

// Ends the queue pair because of an invalid request or invalid memory. If the message has taken a receive, the receive
// completes with `status`.
void ReliableResponder::refuse(NakCode code, Psn psn, ibv_wc_status status) {
  // If a response to an earlier request fails, its NAK is the last packet.
  respond();
  if (connection_.queue_pair.state() == IBV_QPS_ERR) return;
  nak(code, psn);
  if (receive_taken_) {
    ibv_wc completion = {};
    completion.status = status;
    completion.opcode = IBV_WC_RECV;
    completion.src_qp = connection_.remote_number;
    complete_receive(completion, true);
  } else {
    connection_.queue_pair.announce(code == NakCode::kRemoteAccess ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
  }
  connection_.queue_pair.enter_error();
}

// Adds the packets of a response to the batch that earlier responses may have begun. Returns false if the kernel has no
// room.
bool ReliableResponder::add_response(Response& response) {
  PacketBatch& batch = connection_.nic.batch;
  Headers headers;
  headers.transport = connection_.transport;
  headers.destination = connection_.remote_number;
  headers.syndrome = kSyndromeAck;
  headers.message_count = response.message_count;
  std::byte* bytes = nullptr;
  if (response.length > 0) {
    domain_ = response.domain;
    bytes = remote_memory(response.address, response.key, response.length, IBV_ACCESS_REMOTE_READ);
    if (bytes == nullptr) {  // deregistered since the request arrived
      nak(NakCode::kRemoteAccess, response.first + response.sent);
      connection_.queue_pair.enter_error();
      return true;
    }
  }
  const std::uint32_t mtu = connection_.path_mtu_bytes;
  for (; response.sent < response.packets; ++response.sent) {
    const bool first = response.sent == 0;
    const bool last = response.sent + 1 == response.packets;
    headers.operation = response.atomic ? Operation::kAtomicAcknowledge
                        : first && last ? Operation::kReadResponseOnly
                        : first         ? Operation::kReadResponseFirst
                        : last          ? Operation::kReadResponseLast
                                        : Operation::kReadResponseMiddle;
    headers.psn = response.first + response.sent;
    headers.original = response.original;
    const std::uint32_t offset = response.sent * mtu;
    iovec payload = {bytes + offset, std::min(mtu, response.length - offset)};
    if ((response.copies && !batch.copy(payload)) ||
        !batch.add(connection_.path, headers, {&payload, payload.iov_len > 0 ? 1u : 0u}, payload.iov_len)) {
      if (!batch.unreadable()) return false;
      nak(NakCode::kRemoteOperation, headers.psn);
      connection_.queue_pair.enter_error();
      return true;
    }
    if (batch.begun()) responses_.begin_batch(response.sent);
  }
  return true;
}

// The last packet of a READ response and the first one of the next are of equal length, and small responses fit into
// one batch, so a batch ends only when no response is left.
void ReliableResponder::respond() {
  while (Response* const response = responses_.next()) {
    if (!add_response(*response)) return repeat_responses();
    if (!responses_.empty()) responses_.advance();  // empty if the queue pair has entered the error state
  }
  if (!connection_.nic.batch.flush()) return repeat_responses();
  responses_.end_batch();
  if (ack_due_) send_ack(kSyndromeAck, expected_.previous());
}

// Sends the last batch again when the kernel has room.
void ReliableResponder::repeat_responses() {
  responses_.repeat_batch();
  connection_.nic.scheduler.wait_for_room(connection_.queue_pair);
}

}  // namespace plugfest::roce
