// The responder of a reliable queue pair, which executes requests in order and answers them.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "fabric/roce/qp/response_queue.h"
#include "fabric/roce/qp/transports.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class ReliableResponder final : public Responder {
 public:
  using Responder::Responder;

  void start(const Settings& settings) override;
  void set_reads_in_flight(unsigned reads) override;
  void reset(bool shared_receives) override;

  /// Sends NAKs at once. respond() sends responses and acknowledgements.
  void receive(const Packet& packet, const Arrival& arrival) override;

  /// Sends the responses that are due, then one acknowledgement for all requests.
  void respond() override;
  bool acknowledgement_may_wait() const override {
    return only_acknowledgement_due() && message_.kind == IncomingMessage::Kind::kNone;
  }
  bool piggyback_acknowledgement() override;
  void restore_acknowledgement() override { ack_due_ = true; }
  void flush(bool shared_receives) override;

 private:
  bool only_acknowledgement_due() const { return ack_due_ && responses_.empty(); }
  bool use_queue_of(const Headers& headers);
  void forget_receive_of_destroyed_queue();
  void receive_duplicate(const Packet& packet);
  void receive_send(const Packet& packet, const OperationTraits& traits);
  bool invalidate(std::uint32_t key);
  void receive_write(const Packet& packet, const OperationTraits& traits);
  void receive_read(const Packet& packet, bool duplicate);
  void receive_atomic(const Packet& packet);
  bool answer_earlier();
  bool take_receive_or_nak(const Packet& packet);
  void accept(const Packet& packet, const OperationTraits& traits, std::uint32_t packets);
  void respond_to_atomic(Psn psn, std::uint64_t original);

  Headers acknowledgement(std::uint8_t syndrome, Psn psn) const;
  void send_ack(std::uint8_t syndrome, Psn psn);
  void nak(NakCode code, Psn psn);
  void nak_sequence(Psn psn);
  void refuse(NakCode code, Psn psn, ibv_wc_status status);
  bool add_response(Response& response);
  void repeat_responses();

  std::uint32_t message_count_ = 0;  ///< MSN
  bool ack_due_ = false;
  bool nak_sent_ = false;  ///< a NAK for a gap was sent; packets ahead of expected_ are dropped without a further NAK
  Psn ahead_;              ///< the packet furthest ahead of expected_ since that NAK
  IncomingMessage message_;
  std::uint32_t shared_queue_ = 0;  ///< XRC: number of the queue that the last request has named
  ResponseQueue responses_;
  AtomicResults atomic_results_;
};

}  // namespace plugfest::roce
