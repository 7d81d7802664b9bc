// The receiving half of a queue pair: puts requests into memory, in order, and answers them.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "fabric/roce/qp/responder.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class ReliableResponder final : public Responder {
 public:
  using Responder::Responder;

  void start(const Settings& settings) override;
  void reset(bool shared_receives) override;

  /// Answers wait for respond(), NAKs do not.
  void receive(const Packet& packet, const Arrival& arrival) override;

  Placement placement_for(const Headers& headers) const override;
  Placement next_placement() const override;

  /// Sends what is due: responses to READs and atomics, then one acknowledgement for everything.
  void respond() override;
  bool only_acknowledgement_due() const override { return ack_due_ && first_answer_ == end_answer_; }
  bool piggyback_acknowledgement() override;
  void restore_acknowledgement() override { ack_due_ = true; }
  void flush(bool shared_receives) override;

 private:
  bool has_answers() const { return ack_due_ || first_answer_ != end_answer_; }

  // A READ or an atomic to be answered, or that was.
  struct Answer {
    bool atomic;
    Psn first;
    std::uint32_t packets;
    std::uint32_t sent;
    std::uint64_t address;
    std::uint32_t key;
    std::uint32_t length;
    std::uint64_t original;
    std::uint32_t message_count;
  };
  struct AtomicResult {
    Psn psn;
    std::uint64_t original;
  };
  enum class Message : std::uint8_t { kNone, kSend, kWrite };

  void receive_duplicate(const Packet& packet);
  void receive_send(const Packet& packet, const OperationTraits& traits);
  bool invalidate(std::uint32_t key);
  void receive_write(const Packet& packet, const OperationTraits& traits);
  void receive_read(const Packet& packet, bool duplicate);
  void receive_atomic(const Packet& packet);
  bool take_receive_or_refuse(const Packet& packet);
  void accept(const Packet& packet, const OperationTraits& traits, std::uint32_t packets);
  bool room_for_answer() const { return end_answer_ - first_answer_ < answers_.size(); }
  void answer_atomic(Psn psn, std::uint64_t original);
  Answer& add_answer() { return answers_[end_answer_++ % answers_.size()]; }

  Headers acknowledgement(std::uint8_t syndrome, Psn psn) const;
  void send_ack(std::uint8_t syndrome, Psn psn);
  void nak(NakCode code, Psn psn);
  void nak_sequence(Psn psn);
  void refuse(NakCode code, Psn psn, ibv_wc_status status);
  bool send_answer(Answer& answer);

  std::uint32_t message_count_ = 0;  ///< MSN
  bool ack_due_ = false;
  bool repair_asked_ = false;  ///< a NAK is out; what is ahead of expected_ is dropped without another
  Psn ahead_;                  ///< furthest packet seen ahead of expected_ since then

  Message message_ = Message::kNone;  ///< being received
  std::uint64_t received_bytes_ = 0;  ///< of the message
  std::uint64_t write_address_ = 0;   ///< where its next packet goes
  std::uint32_t write_key_ = 0;
  std::uint64_t write_left_ = 0;

  std::vector<Answer> answers_;  ///< ring
  std::uint64_t first_answer_ = 0;
  std::uint64_t end_answer_ = 0;
  std::vector<AtomicResult> atomic_results_;  ///< ring of the latest
  std::uint64_t atomics_ = 0;
};

}  // namespace plugfest::roce
