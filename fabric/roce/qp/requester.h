// The requester of a queue pair: the interface of all transports, and what they have in common.
#pragma once

#include <infiniband/verbs.h>

#include "fabric/roce/memory/scatter_gather_list.h"
#include "fabric/roce/qp/completion_queue.h"
#include "fabric/roce/qp/connection.h"
#include "fabric/roce/qp/send_queue.h"
#include "fabric/roce/wire/psn.h"
#include "fabric/roce/wire/wire.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// A packet of a send queue.
struct PacketPosition {
  std::uint64_t request = 0;  ///< number in the SendQueue
  std::uint32_t packet = 0;   ///< within the request
};

/// Not thread-safe; guarded by the NIC's lock.
class Requester {
 public:
  /// Attributes of the transition to RTS. Unreliable transports use first_psn only.
  struct Settings {
    Psn first_psn;
    Nanoseconds timeout = kNever;  ///< without an acknowledgement, until packets are repeated
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

  /// Removes all requests without completions, at the transition to RESET.
  virtual void reset() = 0;

  /// Appends a request. Returns 0 or an errno value as QueuePair::post_send.
  virtual int post(const ibv_send_wr& request) = 0;

  /// Sends the packets that may be sent now.
  virtual void transmit(Nanoseconds now) = 0;

  /// Whether posted requests may wait for more requests to share a system call, because an acknowledgement will come
  /// soon.
  virtual bool may_defer() const { return false; }

  /// Handles an acknowledgement or a response, if the transport has them.
  virtual void receive(const Packet& /*packet*/, Nanoseconds /*now*/) {}

  /// Reduces the congestion window, if the transport has one, because a packet was marked for congestion.
  virtual void on_congestion() {}

  /// Where the payload of a packet with these headers and of the packets after it belongs. Empty unless the packet is
  /// the next one of a response to a READ.
  virtual Placement placement_for(const Headers& /*headers*/) const { return {}; }
  /// The same for the next expected packet, if it continues a response.
  virtual Placement next_placement() const { return {}; }

  /// When on_timer() must be called; kNever if no timer runs.
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

}  // namespace plugfest::roce
