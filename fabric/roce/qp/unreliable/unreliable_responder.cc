// Receives the messages of an unreliable connection.
// Source of the rules: InfiniBand Architecture Specification vol. 1, sections 9.8.2 and 9.9.3 (classes of errors).
#include "fabric/roce/qp/unreliable/unreliable_responder.h"

#include "fabric/roce/memory/ordered_copy.h"
#include "fabric/roce/qp/queue_pair_engine.h"

namespace plugfest::roce {

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
    copy_in_order(to, packet.payload);
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
