// The inside of a queue pair: state, the two halves, what the NIC calls.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/qp/connection.h"
#include "fabric/roce/qp/nic_context.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/responder.h"
#include "fabric/roce/qp/receive_queue.h"
#include "fabric/roce/qp/scheduler.h"
#include "fabric/roce/qp/requester.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Guarded by the NIC's lock, but for state() and what is constant.
class QueuePairEngine {
 public:
  QueuePairEngine(const NicContext& nic, const ProtectionDomain& domain, const QueuePairSettings& settings);
  ~QueuePairEngine();
  QueuePairEngine(const QueuePairEngine&) = delete;
  QueuePairEngine& operator=(const QueuePairEngine&) = delete;

  // --- for QueuePair; these take the lock ---

  int modify(const ibv_qp_attr& attributes, int mask);
  void query(ibv_qp_attr& attributes) const;
  int post_send(ibv_send_wr* list, ibv_send_wr** bad);
  int post_receive(ibv_recv_wr* list, ibv_recv_wr** bad);

  std::uint32_t number() const { return connection_.number; }
  const ibv_qp_cap& capabilities() const { return settings_.capabilities; }
  ibv_qp_state state() const { return state_.load(std::memory_order_acquire); }

  // --- for the NIC, with the lock held ---

  /// A packet for this queue pair whose ICRC is right.
  void receive(const Packet& packet, const Arrival& arrival, Nanoseconds now);

  std::uint32_t path_mtu_bytes() const { return connection_.path_mtu_bytes; }

  /// Where the payload of a packet with these headers, and of those right behind it, may be put before it is known that
  /// they are right. If they are, receive() is called with the payload in its place; if not, what was put there does no
  /// harm: the message is not complete, and its last packet's memory is not among it.
  Placement placement_for(const Headers& headers, const Arrival& arrival) const;

  /// placement_for() the packet that has to come next, if it goes on with a message. `request`: of the peer's,
  /// otherwise with the response to a READ of this side's.
  Placement next_placement(bool request) const {
    if (!accepts_packets()) return {};
    return request ? responder_->next_placement() : requester_->next_placement();
  }

  /// Sends what is due after packets have come or the kernel has room again.
  void send_pending(Nanoseconds now);

  /// For the sending half: as Responder's.
  bool piggyback_acknowledgement() { return responder_->piggyback_acknowledgement(); }
  void restore_acknowledgement() { responder_->restore_acknowledgement(); }

  Nanoseconds deadline() const { return requester_->deadline(); }
  void on_timer(Nanoseconds now) { requester_->on_timer(now); }

  /// Moves to ERR and flushes. Harmless if it is there already.
  void enter_error();

  /// Moves to SQE, and flushes what was posted to be sent: a send of an unreliable queue pair failed here.
  void enter_send_error();

  void announce(ibv_event_type event) const {
    if (settings_.async != nullptr) settings_.async(settings_.context, event);
  }

  SchedulerEntry& scheduler_entry() { return scheduler_entry_; }

 private:
  void note_mark(const Headers& headers, Nanoseconds now);
  void send_notification();
  bool takes(const Headers& headers, const Arrival& arrival) const;
  int check(const ibv_qp_attr& attributes, int mask, ibv_qp_state from, ibv_qp_state to) const;
  int set_attributes(const ibv_qp_attr& attributes, int mask);
  bool accepts_packets() const;
  int set_path(const ibv_ah_attr& address);
  void to_reset();

  const NicContext nic_;
  QueuePairSettings settings_;
  Connection connection_;
  std::unique_ptr<ReceiveQueue> own_receives_;
  ReceiveQueue& receives_;
  const std::unique_ptr<Requester> requester_;
  const std::unique_ptr<Responder> responder_;
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  ibv_qp_attr attributes_ = {};  ///< as set by modify
  bool communication_established_ = false;
  SchedulerEntry scheduler_entry_;
  bool acknowledgement_delayed_ = false;  ///< the acknowledgement that is due was delayed once
  bool notification_due_ = false;
  Nanoseconds next_notification_ = 0;  ///< not before then
};

}  // namespace plugfest::roce
