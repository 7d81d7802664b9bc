// Receives messages that are not repeated.
// Source of the rules: InfiniBand Architecture Specification vol. 1, sections 9.8.2 and 9.9.3 (classes of errors).
#include "fabric/roce/qp/unreliable/unreliable_responder.h"

#include <cstring>

#include "fabric/roce/qp/queue_pair_engine.h"

namespace plugfest::roce {

void UnreliableResponder::start(const Settings& settings) {
  Responder::start(settings);
  message_ = Message::kNone;
}

// Whether the packet begins a message or goes on with the present one. Any packet that begins a message is welcome: its
// number is where counting goes on.
bool UnreliableResponder::follows(const Packet& packet, const OperationTraits& traits) {
  const bool in_sequence = packet.headers.psn == expected_;
  expected_ = packet.headers.psn + 1;
  const std::size_t mtu = connection_.path_mtu_bytes;
  const std::size_t bytes = packet.payload.size();
  const bool right_length = !traits.last ? bytes == mtu : bytes <= mtu && (traits.first || bytes > 0);
  const Message kind = traits.send ? Message::kSend : Message::kWrite;
  if (!right_length || (!traits.first && (!in_sequence || message_ != kind))) return false;
  if (!traits.first) return true;
  if (message_ != Message::kNone) ++connection_.nic.counters.dropped_messages;  // the one before has no end
  message_ = kind;
  received_bytes_ = 0;
  return true;
}

void UnreliableResponder::receive(const Packet& packet, const Arrival& /*arrival*/) {
  if (!started_) return;
  const OperationTraits& traits = traits_of(packet.headers.operation);
  if (!follows(packet, traits) || !(traits.send ? place_send(packet) : place_write(packet, traits))) {
    // Counted once for a message: with its first packet that does not fit.
    if (message_ != Message::kNone || traits.first) ++connection_.nic.counters.dropped_messages;
    message_ = Message::kNone;
    return;
  }
  received_bytes_ += packet.payload.size();
  if (traits.last) complete(packet, traits);
}

// A receive that a dropped message has taken serves the next one.
bool UnreliableResponder::place_send(const Packet& packet) {
  if (!take_receive() || received_bytes_ + packet.payload.size() > room_in_receive()) return false;
  if (place(received_bytes_, packet.payload)) return true;
  ibv_wc completion = {};
  completion.status = IBV_WC_LOC_PROT_ERR;
  completion.opcode = IBV_WC_RECV;
  complete_receive(completion, true);
  connection_.queue_pair.enter_error();
  return false;
}

bool UnreliableResponder::place_write(const Packet& packet, const OperationTraits& traits) {
  const std::size_t bytes = packet.payload.size();
  if (traits.first) {
    write_address_ = packet.headers.address;
    write_key_ = packet.headers.key;
    write_left_ = packet.headers.length;
  }
  if (traits.last ? bytes != write_left_ : bytes >= write_left_) return false;
  if (traits.has_immediate && !take_receive()) return false;
  if (bytes > 0) {
    // All that is left, so that a message which does not fit is refused with its first packet.
    std::byte* const to = remote_memory(write_address_, write_key_, write_left_, IBV_ACCESS_REMOTE_WRITE);
    if (to == nullptr) return false;
    std::memcpy(to, packet.payload.data(), bytes);
  }
  write_address_ += bytes;
  write_left_ -= bytes;
  return true;
}

void UnreliableResponder::complete(const Packet& packet, const OperationTraits& traits) {
  message_ = Message::kNone;
  if (traits.write && !traits.has_immediate) return;
  complete_message(packet, traits, received_bytes_);
}

}  // namespace plugfest::roce
