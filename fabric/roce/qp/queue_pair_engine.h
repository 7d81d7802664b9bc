// The implementation of a queue pair.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/qp/connection.h"
#include "fabric/roce/qp/nic_context.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/receive_queue.h"
#include "fabric/roce/qp/requester.h"
#include "fabric/roce/qp/responder.h"
#include "fabric/roce/qp/scheduler.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Holds the state and the attributes of a queue pair, and directs packets to its requester and its responder. Its 14
/// data members are the parts that one queue pair has once; the transports' state is in requester and responder.
///
/// Guarded by the NIC's lock, except for state() and constants.
class QueuePairEngine {
 public:
  QueuePairEngine(const NicContext& nic, const ProtectionDomain& domain, const QueuePairSettings& settings);
  ~QueuePairEngine();
  QueuePairEngine(const QueuePairEngine&) = delete;
  QueuePairEngine& operator=(const QueuePairEngine&) = delete;

  // --- for QueuePair; these take the NIC's lock ---

  int modify(const ibv_qp_attr& attributes, int mask);
  void query(ibv_qp_attr& attributes) const;
  int post_send(ibv_send_wr* list, ibv_send_wr** bad);
  int post_receive(ibv_recv_wr* list, ibv_recv_wr** bad);

  std::uint32_t number() const { return connection_.number; }
  const ibv_qp_cap& capabilities() const { return settings_.capabilities; }
  ibv_qp_state state() const { return state_.load(std::memory_order_acquire); }

  // --- for the engine; with the NIC's lock ---

  /// Handles a packet for this queue pair. The ICRC has been checked.
  void receive(const Packet& packet, const Arrival& arrival, Nanoseconds now);

  std::uint32_t path_mtu_bytes() const { return connection_.path_mtu_bytes; }

  /// Where the payload of a packet with these headers and of the packets after it may be placed before the packets are
  /// checked. If the check succeeds, receive() is called with Packet::in_place set. If not, wrong bytes are there until
  /// the right packets arrive. So this is only for the response to a READ, whose memory a program reads after the
  /// completion. Programs poll the memory of a WRITE, as NCCL's kernels do with the protocols LL and LL128.
  Placement placement_for(const Headers& headers, const Arrival& arrival) const;

  /// As placement_for() for the next expected packet, if it continues a response.
  Placement next_placement() const { return accepts_packets() ? requester_->next_placement() : Placement{}; }

  /// Sends what is due after packets have come or the kernel has room again.
  void send_pending(Nanoseconds now);

  /// For the requester: as in Responder.
  bool piggyback_acknowledgement() { return responder_->piggyback_acknowledgement(); }
  void restore_acknowledgement() { responder_->restore_acknowledgement(); }

  Nanoseconds deadline() const { return requester_->deadline(); }
  void on_timer(Nanoseconds now) { requester_->on_timer(now); }

  /// Moves to ERR and flushes all requests. Does nothing in ERR.
  void enter_error();

  /// Moves to SQE and flushes the send queue, after a send of an unreliable queue pair has failed.
  void enter_send_error();

  /// Reports an asynchronous event.
  void announce(ibv_event_type event) const {
    if (settings_.async != nullptr) settings_.async(settings_.context, event);
  }

  SchedulerEntry& scheduler_entry() { return scheduler_entry_; }

 private:
  void on_mark(const Headers& headers, Nanoseconds now);
  void send_notification();
  bool accepts(const Headers& headers, const Arrival& arrival) const;
  int validate(const ibv_qp_attr& attributes, int mask, ibv_qp_state from, ibv_qp_state to) const;
  int set_attributes(const ibv_qp_attr& attributes, int mask);
  bool accepts_packets() const;
  int set_path(const ibv_ah_attr& address);
  void to_reset();
  void remove_completions();

  const NicContext nic_;
  QueuePairSettings settings_;
  Connection connection_;
  std::unique_ptr<ReceiveQueue> own_receives_;
  ReceiveQueue& receives_;
  const std::unique_ptr<Requester> requester_;
  const std::unique_ptr<Responder> responder_;
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  ibv_qp_attr attributes_ = {};  ///< as set by modify()
  bool communication_established_ = false;
  SchedulerEntry scheduler_entry_;
  bool acknowledgement_delayed_ = false;  ///< the acknowledgement that is due was delayed once
  bool notification_due_ = false;         ///< a congestion notification must be sent
  Nanoseconds next_notification_ = 0;     ///< earliest time of the next congestion notification
};

}  // namespace plugfest::roce
