// The receiving half of a queue pair, whatever its transport: what the rest of the queue pair calls, and how messages
// get into posted receives.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/qp/completion_queue.h"
#include "fabric/roce/qp/connection.h"
#include "fabric/roce/qp/receive_queue.h"
#include "fabric/roce/wire/wire.h"

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
  virtual ~Responder() = default;
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  virtual void start(const Settings& settings);
  /// Forgets everything, as for RESET; posted receives too, unless they are shared.
  virtual void reset(bool shared_receives);
  void set_rnr_timer(std::uint8_t code) { settings_.rnr_timer = code; }

  /// Handles a request of a peer.
  virtual void receive(const Packet& packet, const Arrival& arrival) = 0;

  /// Where the payload of a packet with these headers would go, and of those right behind it. Nothing unless it is the
  /// next one of a message that is being received, and never the memory of a message's last packet: an application may
  /// wait for that to change.
  virtual Placement placement_for(const Headers& /*headers*/) const { return {}; }
  /// The same for the headers that have to come next, if they go on with a message.
  virtual Placement next_placement() const { return {}; }

  /// Sends the answers that are due, where the transport has such.
  virtual void respond() {}

  /// Whether all that is due is one acknowledgement, which can wait for something to go with.
  virtual bool only_acknowledgement_due() const { return false; }

  /// Puts that acknowledgement behind the packets in the NIC's batch, if it is due and there is room. If so, and the
  /// batch is not sent after all, restore_acknowledgement() is to be called.
  virtual bool piggyback_acknowledgement() { return false; }
  virtual void restore_acknowledgement() {}

  /// Completes the message being received and every posted receive with IBV_WC_WR_FLUSH_ERR.
  virtual void flush(bool shared_receives);

  Psn expected() const { return expected_; }

 protected:
  /// Where the peer's WRITE, READ or atomic goes, or null if it may not.
  std::byte* remote_memory(std::uint64_t address, std::uint32_t key, std::uint64_t length, unsigned needed) const;

  /// Makes sure that a receive is taken for the message. False: none is posted.
  bool take_receive() { return receive_taken_ || (receive_taken_ = receives_.take(receive_)); }
  std::uint64_t room_in_receive() const;

  /// Puts bytes into the receive that was taken, `offset` bytes from its start; they must fit. False: its memory is
  /// none of the program's.
  bool place(std::uint64_t offset, std::span<const std::byte> bytes) const;

  /// Completes the receive that was taken by a connection's message of `bytes`; `packet` is its last one.
  void complete_message(const Packet& packet, const OperationTraits& traits, std::uint64_t bytes);
  /// Completes the receive that was taken.
  void complete_receive(ibv_wc completion, bool solicited);

  Connection& connection_;
  CompletionQueue& completions_;
  ReceiveQueue& receives_;
  Settings settings_;
  bool started_ = false;
  Psn expected_;
  bool receive_taken_ = false;
  PostedReceive receive_;  ///< taken from the queue for the message being received
};

}  // namespace plugfest::roce
