// The receiving half of a queue pair: puts requests into memory, in order, and answers them.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "fabric/roce/connection.h"
#include "fabric/roce/receive_queue.h"
#include "fabric/roce/wire.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class Responder {
 public:
  struct Settings {
    Psn first_psn;
    unsigned reads_in_flight = 0;  ///< READs and atomics that the peer may have open: max_dest_rd_atomic
    std::uint8_t rnr_timer = 0;    ///< code
  };

  Responder(Connection& connection, CompletionQueue& completions, ReceiveQueue& receives)
      : connection_(connection), completions_(completions), receives_(receives) {}

  void start(const Settings& settings);
  /// Forgets everything, as for RESET; posted receives too, unless they are shared.
  void reset(bool shared_receives);
  void set_rnr_timer(std::uint8_t code) { settings_.rnr_timer = code; }

  /// Handles a request of the peer. Answers wait for respond(), NAKs do not.
  void receive(const Packet& packet);

  /// Sends what is due: responses to READs and atomics, then one acknowledgement for everything.
  void respond();
  bool has_answers() const { return ack_due_ || first_answer_ != end_answer_; }

  /// Completes the message being received and every posted receive with IBV_WC_WR_FLUSH_ERR.
  void flush(bool shared_receives);

  Psn expected() const { return expected_; }

 private:
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
  void receive_write(const Packet& packet, const OperationTraits& traits);
  void receive_read(const Packet& packet, bool duplicate);
  void receive_atomic(const Packet& packet);
  bool take_receive(const Packet& packet);
  void complete_receive(const Packet& packet, const OperationTraits& traits, ibv_wc_opcode opcode);
  void accept(const Packet& packet, const OperationTraits& traits, std::uint32_t packets);
  std::byte* remote_memory(std::uint64_t address, std::uint32_t key, std::uint64_t length, unsigned needed) const;
  bool place(std::span<const std::byte> bytes);
  bool room_for_answer() const { return end_answer_ - first_answer_ < answers_.size(); }
  void answer_atomic(Psn psn, std::uint64_t original);
  Answer& add_answer() { return answers_[end_answer_++ % answers_.size()]; }

  void send_ack(std::uint8_t syndrome, Psn psn);
  void nak(NakCode code, Psn psn);
  void nak_sequence(Psn psn);
  void refuse(NakCode code, Psn psn, ibv_wc_status status);
  bool send_answer(Answer& answer);

  Connection& connection_;
  CompletionQueue& completions_;
  ReceiveQueue& receives_;
  Settings settings_;
  bool started_ = false;

  Psn expected_;
  std::uint32_t message_count_ = 0;  ///< MSN
  bool ack_due_ = false;
  bool repair_asked_ = false;  ///< a NAK is out; what is ahead of expected_ is dropped without another
  Psn ahead_;                  ///< furthest packet seen ahead of expected_ since then

  Message message_ = Message::kNone;  ///< being received
  PostedReceive receive_;             ///< taken from the queue for it
  bool receive_taken_ = false;
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
