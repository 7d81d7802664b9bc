// The responder of a queue pair: the interface of all transports, and what they have in common.
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

/// The SEND or WRITE that a responder is receiving.
struct IncomingMessage {
  enum class Kind : std::uint8_t { kNone, kSend, kWrite };

  Kind kind = Kind::kNone;
  std::uint64_t received_bytes = 0;
  std::uint64_t write_address = 0;  ///< of the next packet of a WRITE
  std::uint32_t write_key = 0;
  std::uint64_t write_left = 0;  ///< bytes of a WRITE that are still missing

  /// Takes address, key and length from the RETH of a WRITE's first packet.
  void begin_write(const Headers& headers) {
    write_address = headers.address;
    write_key = headers.key;
    write_left = headers.length;
    received_bytes = 0;
  }

  /// Advances a WRITE by the payload of one packet.
  void advance_write(std::uint64_t bytes) {
    write_address += bytes;
    write_left -= bytes;
    received_bytes += bytes;
  }
};

/// Not thread-safe; guarded by the NIC's lock.
class Responder {
 public:
  struct Settings {
    Psn first_psn;
    unsigned reads_in_flight = 0;  ///< READs and atomics of the peer in flight: max_dest_rd_atomic
    std::uint8_t rnr_timer = 0;    ///< RNR NAK timer code
  };

  Responder(Connection& connection, CompletionQueue& completions, ReceiveQueue& receives)
      : connection_(connection), completions_(completions), receives_(receives) {}
  virtual ~Responder() = default;
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  virtual void start(const Settings& settings);
  /// Forgets the current message, and removes posted receives without completions unless they are shared. For the
  /// transition to RESET.
  virtual void reset(bool shared_receives);
  void set_rnr_timer(std::uint8_t code) { settings_.rnr_timer = code; }

  /// Handles a request packet of a peer.
  virtual void receive(const Packet& packet, const Arrival& arrival) = 0;

  /// Sends responses and acknowledgements that are due, if the transport has them.
  virtual void respond() {}

  /// Whether nothing but one acknowledgement is due, which a reply of the program may soon carry: the message is
  /// complete.
  virtual bool acknowledgement_may_wait() const { return false; }

  /// Appends an acknowledgement to the current batch, if nothing else is due and the batch has room. If this returns
  /// true and the batch cannot be sent, restore_acknowledgement() must be called.
  virtual bool piggyback_acknowledgement() { return false; }
  virtual void restore_acknowledgement() {}

  /// Completes the message being received and every posted receive with IBV_WC_WR_FLUSH_ERR.
  virtual void flush(bool shared_receives);

  Psn expected() const { return expected_; }

 protected:
  /// The memory for a WRITE, READ or atomic of the peer. Null if the peer may not access it.
  std::byte* remote_memory(std::uint64_t address, std::uint32_t key, std::uint64_t length, unsigned needed) const;

  /// Takes a receive for the message, unless one is taken. False if none is posted.
  bool take_receive() { return receive_taken_ || (receive_taken_ = receives_.take(receive_)); }
  std::uint64_t room_in_receive() const;

  /// Copies bytes into the receive that was taken, `offset` bytes from its start; they must fit. False if its memory is
  /// not registered.
  bool place(std::uint64_t offset, std::span<const std::byte> bytes) const;

  /// Completes the receive of a connection's message with `bytes` bytes. `packet`: the last packet of the message.
  void complete_message(const Packet& packet, const OperationTraits& traits, std::uint64_t bytes);
  /// Completes the receive that was taken.
  void complete_receive(ibv_wc completion, bool solicited);

  Connection& connection_;
  CompletionQueue& completions_;
  ReceiveQueue& receives_;
  Settings settings_;
  bool started_ = false;  ///< start() was called since reset()
  Psn expected_;          ///< the next packet of a connection
  bool receive_taken_ = false;
  PostedReceive receive_;  ///< taken from the queue for the message being received
};

}  // namespace plugfest::roce
