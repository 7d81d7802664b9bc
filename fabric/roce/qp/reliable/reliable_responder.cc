// The responder: requests in order, into memory.
// Source of the rules: InfiniBand Architecture Specification vol. 1, section 9.7.
#include "fabric/roce/qp/reliable/reliable_responder.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "fabric/roce/memory/memory_window.h"
#include "fabric/roce/qp/queue_pair_engine.h"

namespace plugfest::roce {

void ReliableResponder::start(const Settings& settings) {
  Responder::start(settings);
  message_count_ = 0;
  answers_.assign(std::max(1u, settings.reads_in_flight), {});
  atomic_results_.assign(std::max(1u, settings.reads_in_flight), {});
}

void ReliableResponder::reset(bool shared_receives) {
  Responder::reset(shared_receives);
  ack_due_ = repair_asked_ = false;
  message_ = Message::kNone;
  first_answer_ = end_answer_ = atomics_ = 0;
}

void ReliableResponder::flush(bool shared_receives) {
  Responder::flush(shared_receives);
  ack_due_ = false;
  first_answer_ = end_answer_;
}

void ReliableResponder::receive(const Packet& packet, const Arrival& /*arrival*/) {
  if (!started_) return;
  const std::int32_t distance = packet.headers.psn.after(expected_);
  if (distance > 0) {
    ++connection_.nic.counters.out_of_sequence;
    return nak_sequence(packet.headers.psn);
  }
  if (distance < 0) return receive_duplicate(packet);
  repair_asked_ = false;

  const OperationTraits& traits = traits_of(packet.headers.operation);
  const bool begins = message_ == Message::kNone;
  const bool continues = (message_ == Message::kSend && traits.send) || (message_ == Message::kWrite && traits.write);
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

// How long a SEND is stands nowhere: what follows it in the same batch could land behind its end.
Placement ReliableResponder::placement_for(const Headers& headers) const {
  if (headers.psn != expected_ || headers.operation != Operation::kWriteMiddle) return {};
  return next_placement();
}

Placement ReliableResponder::next_placement() const {
  const std::size_t mtu = connection_.path_mtu_bytes;
  if (!started_ || message_ != Message::kWrite || write_left_ <= mtu) return {};
  const std::size_t packets = (write_left_ - 1) / mtu;
  return {remote_memory(write_address_, write_key_, packets * mtu, IBV_ACCESS_REMOTE_WRITE), packets};
}

void ReliableResponder::accept(const Packet& packet, const OperationTraits& traits, std::uint32_t packets) {
  expected_ = expected_ + packets;
  if (traits.last) message_count_ = (message_count_ + 1) & 0xffffff;
  if (packet.headers.ack_request) ack_due_ = true;
}

// Makes sure that a receive is there for the message. Without one the peer is told to come back later.
bool ReliableResponder::take_receive_or_refuse(const Packet& packet) {
  if (take_receive()) return true;
  ++connection_.nic.counters.sent_rnr_naks;
  repair_asked_ = true;
  ahead_ = packet.headers.psn;
  send_ack(static_cast<std::uint8_t>(kSyndromeRnr | settings_.rnr_timer), packet.headers.psn);
  return false;
}

// Takes from the peer what a SEND with invalidate names. What it asked for before must have been answered by then.
bool ReliableResponder::invalidate(std::uint32_t key) {
  MemoryWindow* const window = connection_.nic.memory.window_at(key);
  return window != nullptr && window->invalidate(key, connection_.number);
}

void ReliableResponder::receive_send(const Packet& packet, const OperationTraits& traits) {
  if (traits.has_invalidate && first_answer_ != end_answer_) {
    respond();
    if (first_answer_ != end_answer_ || connection_.queue_pair.state() == IBV_QPS_ERR) return;  // it will be repeated
  }
  if (!take_receive_or_refuse(packet)) return;
  if (traits.first) received_bytes_ = 0;
  if (received_bytes_ + packet.payload.size() > room_in_receive())
    return refuse(NakCode::kInvalidRequest, packet.headers.psn, IBV_WC_LOC_LEN_ERR);
  if (!place(received_bytes_, packet.payload))
    return refuse(NakCode::kRemoteOperation, packet.headers.psn, IBV_WC_LOC_PROT_ERR);
  if (traits.has_invalidate && !invalidate(packet.headers.key))
    return refuse(NakCode::kRemoteAccess, packet.headers.psn, IBV_WC_REM_INV_REQ_ERR);
  received_bytes_ += packet.payload.size();
  message_ = traits.last ? Message::kNone : Message::kSend;
  accept(packet, traits, 1);
  if (traits.last) complete_message(packet, traits, received_bytes_);
}

void ReliableResponder::receive_write(const Packet& packet, const OperationTraits& traits) {
  const std::size_t bytes = packet.payload.size();
  if (traits.first) {
    write_address_ = packet.headers.address;
    write_key_ = packet.headers.key;
    write_left_ = packet.headers.length;
    received_bytes_ = 0;
    if (write_left_ > 0 && remote_memory(write_address_, write_key_, write_left_, IBV_ACCESS_REMOTE_WRITE) == nullptr)
      return refuse(NakCode::kRemoteAccess, packet.headers.psn, IBV_WC_LOC_ACCESS_ERR);
  }
  if (traits.last ? bytes != write_left_ : bytes >= write_left_)
    return refuse(NakCode::kInvalidRequest, packet.headers.psn, IBV_WC_LOC_LEN_ERR);
  if (traits.has_immediate && !take_receive_or_refuse(packet)) return;
  if (bytes > 0 && !packet.in_place) {
    // Looked up anew for each packet: the region may have gone since the first.
    std::byte* const to = remote_memory(write_address_, write_key_, bytes, IBV_ACCESS_REMOTE_WRITE);
    if (to == nullptr) return refuse(NakCode::kRemoteAccess, packet.headers.psn, IBV_WC_LOC_ACCESS_ERR);
    std::memcpy(to, packet.payload.data(), bytes);
  }
  write_address_ += bytes;
  write_left_ -= bytes;
  received_bytes_ += bytes;
  message_ = traits.last ? Message::kNone : Message::kWrite;
  accept(packet, traits, 1);
  if (traits.has_immediate) complete_message(packet, traits, received_bytes_);
}

void ReliableResponder::receive_read(const Packet& packet, bool duplicate) {
  const Headers& headers = packet.headers;
  if (headers.length > kLargestMessageBytes || (settings_.reads_in_flight == 0 && !duplicate))
    return refuse(NakCode::kInvalidRequest, headers.psn, IBV_WC_LOC_LEN_ERR);
  const std::uint32_t mtu = connection_.path_mtu_bytes;
  const std::uint32_t packets = headers.length == 0 ? 1 : (headers.length + mtu - 1) / mtu;
  // A repetition can ask for no more than was asked for before.
  if (duplicate && (headers.psn + packets).after(expected_) > 0) return;
  if (headers.length > 0 &&
      remote_memory(headers.address, headers.key, headers.length, IBV_ACCESS_REMOTE_READ) == nullptr) {
    if (duplicate) return;  // the region may be gone since it was answered
    return refuse(NakCode::kRemoteAccess, headers.psn, IBV_WC_LOC_ACCESS_ERR);
  }
  if (!room_for_answer()) return;  // more than agreed upon: the peer will ask again
  if (!duplicate) accept(packet, traits_of(headers.operation), packets);
  ack_due_ = false;  // the response acknowledges what came before it
  add_answer() = {.atomic = false,
                  .first = headers.psn,
                  .packets = packets,
                  .sent = 0,
                  .address = headers.address,
                  .key = headers.key,
                  .length = headers.length,
                  .original = 0,
                  .message_count = message_count_};
}

void ReliableResponder::receive_atomic(const Packet& packet) {
  const Headers& headers = packet.headers;
  if (settings_.reads_in_flight == 0 || headers.address % sizeof(std::uint64_t) != 0)
    return refuse(NakCode::kInvalidRequest, headers.psn, IBV_WC_LOC_QP_OP_ERR);
  std::byte* const at = remote_memory(headers.address, headers.key, sizeof(std::uint64_t), IBV_ACCESS_REMOTE_ATOMIC);
  if (at == nullptr || reinterpret_cast<std::uintptr_t>(at) % sizeof(std::uint64_t) != 0)
    return refuse(NakCode::kRemoteAccess, headers.psn, IBV_WC_LOC_ACCESS_ERR);
  if (!room_for_answer()) return;
  std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(at));
  std::uint64_t original = headers.compare;
  if (headers.operation == Operation::kFetchAdd) {
    original = word.fetch_add(headers.swap_or_add);
  } else {
    word.compare_exchange_strong(original, headers.swap_or_add);
  }
  accept(packet, traits_of(headers.operation), 1);
  ack_due_ = false;
  atomic_results_[atomics_++ % atomic_results_.size()] = {headers.psn, original};
  answer_atomic(headers.psn, original);
}

void ReliableResponder::answer_atomic(Psn psn, std::uint64_t original) {
  add_answer() = {.atomic = true,
                  .first = psn,
                  .packets = 1,
                  .sent = 0,
                  .address = 0,
                  .key = 0,
                  .length = 0,
                  .original = original,
                  .message_count = message_count_};
}

void ReliableResponder::receive_duplicate(const Packet& packet) {
  ++connection_.nic.counters.duplicate_requests;
  const Headers& headers = packet.headers;
  const OperationTraits& traits = traits_of(headers.operation);
  if (headers.operation == Operation::kReadRequest) return receive_read(packet, true);
  if (!traits.atomic) {
    ack_due_ = true;  // with a gap ahead too: the NAK may have been lost, and the peer must learn how far things are
    // A repetition that reaches up to the gap means that the peer has begun again.
    if (repair_asked_ && headers.psn == expected_.previous()) ahead_ = expected_;
    return;
  }
  const std::uint64_t kept = std::min<std::uint64_t>(atomics_, atomic_results_.size());
  for (std::uint64_t i = atomics_ - kept; i < atomics_; ++i) {
    const AtomicResult& result = atomic_results_[i % atomic_results_.size()];
    if (result.psn != headers.psn || !room_for_answer()) continue;
    answer_atomic(result.psn, result.original);
    return;
  }
}

}  // namespace plugfest::roce
