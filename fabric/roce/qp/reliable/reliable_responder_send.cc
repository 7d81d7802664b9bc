// Sends acknowledgements, NAKs and responses.
#include <algorithm>

#include "fabric/roce/qp/queue_pair_engine.h"
#include "fabric/roce/qp/reliable/reliable_responder.h"

namespace plugfest::roce {

Headers ReliableResponder::acknowledgement(std::uint8_t syndrome, Psn psn) const {
  Headers headers;
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
  ack_due_ = false;  // a NAK too acknowledges earlier requests
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
// packets and the first of them was lost again: then another NAK is sent.
void ReliableResponder::nak_sequence(Psn psn) {
  if (nak_sent_ && psn.after(ahead_) > 0) {
    ahead_ = psn;
    return;
  }
  respond();  // responses to requests before the gap come first
  nak_sent_ = true;
  ahead_ = psn;
  if (!ack_due_ && responses_.empty()) nak(NakCode::kSequence, expected_);
}

// Ends the queue pair because of an invalid request or invalid memory. If the message has taken a receive, that
// completes with `status`.
void ReliableResponder::refuse(NakCode code, Psn psn, ibv_wc_status status) {
  respond();
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
  headers.destination = connection_.remote_number;
  headers.syndrome = kSyndromeAck;
  headers.message_count = response.message_count;
  std::byte* bytes = nullptr;
  if (response.length > 0) {
    bytes = remote_memory(response.address, response.key, response.length, IBV_ACCESS_REMOTE_READ);
    if (bytes == nullptr) {  // deregistered since the request came
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
    const iovec payload = {bytes + offset, std::min(mtu, response.length - offset)};
    if (!batch.add(connection_.path, headers, {&payload, payload.iov_len > 0 ? 1u : 0u}, payload.iov_len)) return false;
    if (batch.count() == 1) responses_.begin_batch(response.sent);
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
