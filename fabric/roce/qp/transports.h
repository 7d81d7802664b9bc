// Requester and responder of a queue pair: the interfaces of all transports, and what they have in common.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>

#include "fabric/roce/memory/scatter_gather_list.h"
#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/qp/completion_queue.h"
#include "fabric/roce/qp/connection.h"
#include "fabric/roce/qp/work_queues.h"
#include "fabric/roce/wire/wire.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

struct PacketPosition {
  std::uint64_t request = 0;  ///< number in the SendQueue
  std::uint32_t packet = 0;   ///< number within the request
};

/// Not thread-safe; guarded by the NIC's lock.
class Requester {
 public:
  /// Attributes of the transition to RTS. Unreliable transports use first_psn only.
  struct Settings {
    Psn first_psn;
    Nanoseconds timeout = kNever;  ///< time without an acknowledgement until packets are repeated
    unsigned retry_count = 7;
    unsigned rnr_retry = 7;        ///< 7: unlimited
    unsigned reads_in_flight = 1;  ///< READs and atomics
  };

  Requester(Connection& connection, CompletionQueue& completions, const ibv_qp_cap& capabilities, bool signal_all)
      : connection_(connection),
        completions_(completions),
        signal_all_(signal_all),
        queue_(capabilities.max_send_wr, capabilities.max_send_sge, capabilities.max_inline_data) {}
  virtual ~Requester() = default;
  Requester(const Requester&) = delete;
  Requester& operator=(const Requester&) = delete;

  /// Begins to send, at the transition to RTS.
  virtual void start(const Settings& settings) = 0;

  /// Changes all settings except first_psn, if the transport uses them.
  virtual void set_limits(const Settings& /*settings*/, Nanoseconds /*now*/) {}

  /// Removes all requests without completions, at the transition to RESET.
  virtual void reset() = 0;

  /// Appends a request. Returns 0 or an errno value as QueuePair::post_send.
  virtual int post(const ibv_send_wr& request) = 0;

  /// Number of requests posted so far.
  std::uint64_t posted() const { return queue_.end(); }
  /// Removes the requests that were posted after the first `posted` ones. Precondition: transmit() was not called
  /// since.
  virtual void withdraw(std::uint64_t posted) = 0;

  /// Sends the packets that may be sent now.
  virtual void transmit(Nanoseconds now) = 0;

  /// Whether posted requests may wait for more requests to share a system call, because an acknowledgement will come
  /// soon.
  virtual bool may_defer() const { return false; }

  /// Handles an acknowledgement or a response, if the transport has them.
  virtual void receive(const Packet& /*packet*/, Nanoseconds /*now*/) {}

  /// Reduces the congestion window, if the transport has one, because a packet was marked for congestion.
  virtual void on_congestion() {}

  /// The memory for the payload of a packet with these headers and of the packets after it. Empty unless the packet is
  /// the next one of a response to a READ.
  virtual Placement placement_for(const Headers& /*headers*/) const { return {}; }
  /// The memory that placement_for() returns for the next expected packet, if that packet continues a response.
  virtual Placement next_placement() const { return {}; }

  /// Time at which on_timer() must be called; kNever if no timer runs.
  virtual Nanoseconds deadline() const { return kNever; }
  virtual void on_timer(Nanoseconds /*now*/) {}

  /// Completes every request with IBV_WC_WR_FLUSH_ERR.
  virtual void flush() = 0;

  /// Does not start further requests (SQD).
  void pause() { paused_ = true; }
  /// Ends pause().
  void resume(Nanoseconds now) {
    paused_ = announce_drained_ = false;
    transmit(now);
  }
  /// Reports IBV_EVENT_SQ_DRAINED once, when all requests that were started have completed.
  void announce_when_drained() {
    announce_drained_ = true;
    announce_if_drained();
  }
  bool draining() const { return paused_ && !drained(); }

  virtual Psn next_psn() const = 0;

 protected:
  /// Whether all requests that were started have completed.
  virtual bool drained() const = 0;
  void announce_if_drained();

  /// Removes the oldest request from the queue. Adds a completion if the request is signaled or has failed.
  void complete_oldest(ibv_wc_status status);

  /// Executes a request that is_local(). Returns its completion status.
  ibv_wc_status execute_locally(SendRequest& request);

  /// Finds the memory of a request. False if it is not registered memory of the protection domain.
  bool find_memory(std::uint64_t number, const SendRequest& request, ScatterGatherList& pieces) const;

  Connection& connection_;
  CompletionQueue& completions_;
  const bool signal_all_;
  SendQueue queue_;
  bool started_ = false;  ///< start() was called since reset()
  bool paused_ = false;
  bool announce_drained_ = false;
};

/// The operation of one packet of a SEND or WRITE request.
Operation operation_of(ibv_wr_opcode opcode, bool first, bool last);

/// The SEND or WRITE that a responder is receiving.
struct IncomingMessage {
  enum class Kind : std::uint8_t { kNone, kSend, kWrite };

  Kind kind = Kind::kNone;
  std::uint64_t received_bytes = 0;
  std::uint64_t write_address = 0;  ///< address of the next packet of a WRITE
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
      : connection_(connection), completions_(&completions), receives_(&receives), domain_(&connection.domain) {}
  virtual ~Responder() = default;
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  virtual void start(const Settings& settings);
  /// Forgets the current message, and removes posted receives without completions unless they are shared. For the
  /// transition to RESET.
  virtual void reset(bool shared_receives);
  void set_rnr_timer(std::uint8_t code) { settings_.rnr_timer = code; }
  virtual void set_reads_in_flight(unsigned reads) { settings_.reads_in_flight = reads; }

  virtual void receive(const Packet& packet, const Arrival& arrival) = 0;

  /// Sends responses and acknowledgements that are due, if the transport has them.
  virtual void respond() {}

  /// Whether the message is complete and only one acknowledgement is due, which a reply of the program may soon carry.
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
  bool take_receive() { return receive_taken_ || (receive_taken_ = receives_->take(receive_)); }
  std::uint64_t room_in_receive() const;

  /// Copies bytes into the receive that was taken, `offset` bytes from its start; they must fit. False if its memory is
  /// not registered, or not mapped any more.
  bool place(std::uint64_t offset, std::span<const std::byte> bytes) const;

  /// Completes the receive of a connection's message with `bytes` bytes. `packet`: the last packet of the message.
  void complete_message(const Packet& packet, const OperationTraits& traits, std::uint64_t bytes);
  void complete_receive(ibv_wc completion, bool solicited);

  Connection& connection_;
  // With XRC, each request says which queue and so which domain it uses; else they do not change.
  CompletionQueue* completions_;
  ReceiveQueue* receives_;
  const ProtectionDomain* domain_;
  Settings settings_;
  bool started_ = false;  ///< start() was called since reset()
  Psn expected_;          ///< PSN of the next packet of a connection
  bool receive_taken_ = false;
  PostedReceive receive_;  ///< the receive taken from the queue for the current message
};

/// Returns the transport of a queue pair type. Errors: std::system_error with EOPNOTSUPP for an unsupported type.
Transport transport_of(ibv_qp_type type);

/// Create requester and responder for the connection's transport. Errors: std::bad_alloc.
std::unique_ptr<Requester> make_requester(Connection& connection, const QueuePairSettings& settings);
std::unique_ptr<Responder> make_responder(Connection& connection, CompletionQueue& completions, ReceiveQueue& receives);

}  // namespace plugfest::roce
