// A queue pair: states, attributes, posting, and dispatch of received packets.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <memory>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/qp/connection.h"
#include "fabric/roce/qp/nic_context.h"
#include "fabric/roce/qp/scheduler.h"
#include "fabric/roce/qp/transports.h"
#include "fabric/roce/qp/work_queues.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// The limits of a NIC in a process: multicast groups, and queue pairs in each.
inline constexpr std::size_t kMaxGroups = 256, kMaxGroupMembers = 256;

/// Whether verbs allows the transition with these bits of ibv_qp_attr_mask. IBV_QP_STATE and IBV_QP_CUR_STATE are
/// ignored. Source: InfiniBand Architecture Specification vol. 1, table 91.
bool transition_is_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

/// Thread safety: the members that programs use may be called from any thread, except that nothing may run during
/// destruction. The others need the NIC's lock.
/// Errors: in a child after fork(), the members that return an errno value return EIO, and the constructor throws it.
class QueuePair {
 public:
  /// Creates a queue pair in state RESET with a random number.
  /// Errors: std::system_error with EINVAL (a capability beyond the limits, no completion queue), EOPNOTSUPP (an
  /// unsupported type), ENOMEM (no number left).
  QueuePair(const NicContext& nic, const ProtectionDomain& domain, const QueuePairSettings& settings);

  /// Removes completions of this queue pair from their completion queues. No event is reported afterwards.
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  std::uint32_t number() const { return connection_.number; }

  /// Granted capabilities, at least the requested ones.
  const ibv_qp_cap& capabilities() const { return settings_.capabilities; }

  /// Implements ibv_modify_qp. Returns 0 or an errno value: EINVAL for a transition or mask that verbs does not allow,
  /// or an attribute out of range (path MTU above the port's, unknown GID index, …).
  int modify(const ibv_qp_attr& attributes, int mask);

  /// Valid in each state.
  void query(ibv_qp_attr& attributes) const;

  ibv_qp_state state() const { return state_.load(std::memory_order_acquire); }

  /// Implements ibv_attach_mcast: the queue pair receives the datagrams of a group. Does nothing if it is attached
  /// already. Returns 0 or an errno value: EINVAL (no UD queue pair, no group), EOPNOTSUPP
  /// (PortSet::supports_multicast()), ENOMEM (too many groups or members). Errors: std::system_error if the group
  /// cannot be joined.
  int attach(const Address& group);
  /// Implements ibv_detach_mcast. Returns 0, or EINVAL if the queue pair is not attached.
  int detach(const Address& group);
  /// Whether the queue pair is attached to a group.
  bool in_group() const;

  /// Implements ibv_post_send: returns 0, or ENOMEM (queue full) or EINVAL (state, opcode, too many segments, inline
  /// too long), with `*bad` the first request that was not posted. In state ERR requests are accepted and flushed.
  /// `all_or_none`: an error of one request withdraws the requests before it.
  int post_send(ibv_send_wr* list, ibv_send_wr** bad, bool all_or_none = false);

  /// Implements ibv_post_recv. Returns the same values as post_send(), and EINVAL with a shared receive queue.
  int post_receive(ibv_recv_wr* list, ibv_recv_wr** bad);

  // The engine calls the members below, with the NIC's lock.

  /// Whether this queue pair must not get a datagram of its group, because it has sent it itself.
  bool blocks_own(const Packet& packet, const Arrival& arrival) const {
    return settings_.blocks_own_multicast && packet.headers.source == number() &&
           nic_.ports.has(arrival.source.address);
  }

  /// Handles a packet for this queue pair. The ICRC has been checked.
  void receive(const Packet& packet, const Arrival& arrival, Nanoseconds now);

  std::uint32_t path_mtu_bytes() const { return connection_.path_mtu_bytes; }

  /// The memory in which the payload of a packet with these headers, and of later packets, may be placed before the
  /// packets are checked. If the check succeeds, receive() is called with Packet::in_place set. If not, the memory
  /// holds wrong bytes until the right packets arrive. So only responses to READs are placed, whose memory a program
  /// reads after the completion. Programs poll the memory of a WRITE, as NCCL's kernels do with the protocols LL and
  /// LL128.
  Placement placement_for(const Headers& headers, const Arrival& arrival) const;

  /// The memory that placement_for() returns for the next expected packet, if that packet continues a response.
  Placement next_placement() const { return accepts_packets() ? requester_->next_placement() : Placement{}; }

  /// Sends due packets after packets have arrived or the kernel has room again.
  void send_pending(Nanoseconds now);

  /// The requester calls these to send a due acknowledgement with its packets.
  bool piggyback_acknowledgement() { return responder_->piggyback_acknowledgement(); }
  void restore_acknowledgement() { responder_->restore_acknowledgement(); }

  Nanoseconds deadline() const { return requester_->deadline(); }
  void on_timer(Nanoseconds now) { requester_->on_timer(now); }

  /// Moves to ERR and flushes all requests. Does nothing in ERR.
  void enter_error();

  /// Moves to SQE and flushes the send queue, after a send of an unreliable queue pair has failed.
  void enter_send_error();

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
  bool shares_receives() const {
    return settings_.shared_receives != nullptr || connection_.transport == Transport::kExtended;
  }
  void to_reset();
  /// False if not attached.
  bool leave(const Address& group);
  void remove_completions();

  const NicContext nic_;
  QueuePairSettings settings_;
  Connection connection_;
  std::unique_ptr<ReceiveQueue> own_receives_;
  ReceiveQueue& receives_;
  const std::unique_ptr<Requester> requester_;
  const std::unique_ptr<Responder> responder_;
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  ibv_qp_attr attributes_ = {};  ///< attributes that modify() has set
  bool communication_established_ = false;
  SchedulerEntry scheduler_entry_;
  bool acknowledgement_delayed_ = false;  ///< the acknowledgement that is due was delayed once
  bool notification_due_ = false;         ///< a congestion notification must be sent
  Nanoseconds next_notification_ = 0;     ///< earliest time of the next congestion notification
};

}  // namespace plugfest::roce
