// The responder: acknowledgements, refusals and responses.
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
  ack_due_ = false;  // every kind of it acknowledges what came before
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

// One NAK for a gap. If packets come that are not further ahead than those before, the peer has begun to repeat and
// what it repeated was lost again: then another.
void ReliableResponder::nak_sequence(Psn psn) {
  if (repair_asked_ && psn.after(ahead_) > 0) {
    ahead_ = psn;
    return;
  }
  respond();  // answers to what came before the gap stay in order
  repair_asked_ = true;
  ahead_ = psn;
  if (!has_answers()) nak(NakCode::kSequence, expected_);
}

// The peer asked for what it may not have, or memory here does not fit. The queue pair ends; a receive that the message
// had taken completes with `status`.
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

bool ReliableResponder::send_answer(Answer& answer) {
  PacketBatch& batch = connection_.nic.batch;
  Headers headers;
  headers.destination = connection_.remote_number;
  headers.syndrome = kSyndromeAck;
  headers.message_count = answer.message_count;
  if (answer.atomic) {
    headers.operation = Operation::kAtomicAcknowledge;
    headers.psn = answer.first;
    headers.original = answer.original;
    if (!batch.add(connection_.path, headers, {}, 0) || !batch.flush()) return false;
    answer.sent = 1;
    return true;
  }
  std::byte* bytes = nullptr;
  if (answer.length > 0) {
    bytes = remote_memory(answer.address, answer.key, answer.length, IBV_ACCESS_REMOTE_READ);
    if (bytes == nullptr) {  // gone since the request came
      nak(NakCode::kRemoteAccess, answer.first + answer.sent);
      connection_.queue_pair.enter_error();
      return true;
    }
  }
  const std::uint32_t mtu = connection_.path_mtu_bytes;
  std::uint32_t batch_start = answer.sent;
  while (answer.sent < answer.packets) {
    const bool first = answer.sent == 0;
    const bool last = answer.sent + 1 == answer.packets;
    headers.operation = first && last ? Operation::kReadResponseOnly
                        : first       ? Operation::kReadResponseFirst
                        : last        ? Operation::kReadResponseLast
                                      : Operation::kReadResponseMiddle;
    headers.psn = answer.first + answer.sent;
    const std::uint32_t offset = answer.sent * mtu;
    const iovec payload = {bytes + offset, std::min(mtu, answer.length - offset)};
    if (!batch.add(connection_.path, headers, {&payload, payload.iov_len > 0 ? 1u : 0u}, payload.iov_len)) {
      answer.sent = batch_start;
      return false;
    }
    if (batch.count() == 1) batch_start = answer.sent;
    ++answer.sent;
  }
  if (batch.flush()) return true;
  answer.sent = batch_start;
  return false;
}

void ReliableResponder::respond() {
  while (first_answer_ != end_answer_) {
    if (!send_answer(answers_[first_answer_ % answers_.size()])) {
      connection_.nic.scheduler.wait_for_room(connection_.queue_pair);
      return;
    }
    if (first_answer_ != end_answer_) ++first_answer_;  // else the queue pair went into error meanwhile
  }
  if (ack_due_) send_ack(kSyndromeAck, expected_.previous());
}

}  // namespace plugfest::roce
