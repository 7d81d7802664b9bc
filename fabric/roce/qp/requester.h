// The sending half of a queue pair, whatever its transport: what the rest of the queue pair calls.
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

/// Not thread-safe; guarded by the NIC's lock.
class Requester {
 public:
  /// What modify gives it on the way to RTS. Unreliable transports use the first alone.
  struct Settings {
    Psn first_psn;
    Nanoseconds timeout = kNever;  ///< without an acknowledgement, before it repeats
    unsigned retry_count = 7;
    unsigned rnr_retry = 7;        ///< 7: without end
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

  /// Begins to send, from INIT or RTR on the way to RTS.
  virtual void start(const Settings& settings) = 0;

  /// Forgets everything, as for RESET.
  virtual void reset() = 0;

  /// Appends a request. Returns 0 or an errno value as QueuePair::post_send.
  virtual int post(const ibv_send_wr& request) = 0;

  /// Sends what may go now.
  virtual void transmit(Nanoseconds now) = 0;

  /// Whether what was posted may wait for more to leave with it, because the next acknowledgement is not far.
  virtual bool may_defer() const { return false; }

  /// Handles an acknowledgement or a response of the peer, where the transport has such.
  virtual void receive(const Packet& /*packet*/, Nanoseconds /*now*/) {}

  /// The path is congested, the peer says: less at a time, where the transport decides that.
  virtual void on_congestion() {}

  /// As Responder's, for responses to READs.
  virtual Placement placement_for(const Headers& /*headers*/) const { return {}; }
  virtual Placement next_placement() const { return {}; }

  /// When on_timer() wants to be called; kNever if there is nothing to wait for.
  virtual Nanoseconds deadline() const { return kNever; }
  virtual void on_timer(Nanoseconds /*now*/) {}

  /// Completes every request with IBV_WC_WR_FLUSH_ERR.
  virtual void flush() = 0;

  /// Stops sending requests that were not begun (SQD), and goes on.
  void pause() { paused_ = true; }
  void resume(Nanoseconds now) {
    paused_ = announce_drained_ = false;
    transmit(now);
  }
  /// IBV_EVENT_SQ_DRAINED once, when everything that was begun is done.
  void announce_when_drained() {
    announce_drained_ = true;
    announce_if_drained();
  }
  bool draining() const { return paused_ && !drained(); }

  virtual Psn next_psn() const = 0;

 protected:
  /// Nothing is begun and not done.
  virtual bool drained() const = 0;
  void announce_if_drained();

  /// Takes the oldest request off the queue, with a completion if it wants one or has failed.
  void complete_oldest(ibv_wc_status status);

  /// Does a request that is_local(). IBV_WC_SUCCESS, or what it fails with.
  ibv_wc_status execute_locally(SendRequest& request);

  /// Finds the memory of a request. False when it is none of the program's.
  bool find_memory(std::uint64_t number, const SendRequest& request, ScatterGatherList& pieces) const;

  Connection& connection_;
  CompletionQueue& completions_;
  const bool signal_all_;
  SendQueue queue_;
  bool paused_ = false;
  bool announce_drained_ = false;
};

/// The operation of one packet of a SEND or WRITE.
Operation operation_of(ibv_wr_opcode opcode, bool first, bool last);

}  // namespace plugfest::roce
