// The interface of a queue pair: states, attributes, posting.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

namespace plugfest::roce {

class CompletionQueue;
class ProtectionDomain;
class QueuePairEngine;
class ReceiveQueue;
struct NicContext;

/// Attributes of a new queue pair, as in ibv_qp_init_attr.
struct QueuePairSettings {
  ibv_qp_type type = IBV_QPT_RC;
  CompletionQueue* send_queue = nullptr;
  CompletionQueue* receive_queue = nullptr;
  ReceiveQueue* shared_receives = nullptr;  ///< null: a receive queue of its own
  ibv_qp_cap capabilities = {};             ///< requested
  bool signal_all = false;                  ///< sq_sig_all
  /// Gets IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST,
  /// IBV_EVENT_SQ_DRAINED, IBV_EVENT_QP_LAST_WQE_REACHED. Called with locks of the NIC held: it must not call the
  /// NIC. May be null.
  void (*async)(void* context, ibv_event_type event) = nullptr;
  void* context = nullptr;
};

/// Thread safety: every member from any thread, except that nothing may run during destruction.
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

  std::uint32_t number() const;

  /// Granted capabilities, at least the requested ones.
  const ibv_qp_cap& capabilities() const;

  /// As ibv_modify_qp. Returns 0 or an errno value: EINVAL for a transition or mask that verbs does not allow, or an
  /// attribute out of range (path MTU above the port's, unknown GID index, …).
  int modify(const ibv_qp_attr& attributes, int mask);

  /// Writes all attributes. Valid in each state.
  void query(ibv_qp_attr& attributes) const;

  ibv_qp_state state() const;

  /// As ibv_post_send: returns 0, or ENOMEM (queue full) or EINVAL (state, opcode, too many segments, inline too long),
  /// with `*bad` the first request that was not posted. In state ERR requests are accepted and flushed.
  int post_send(ibv_send_wr* list, ibv_send_wr** bad);

  /// As ibv_post_recv, likewise. EINVAL with a shared receive queue.
  int post_receive(ibv_recv_wr* list, ibv_recv_wr** bad);

 private:
  std::unique_ptr<QueuePairEngine> engine_;
};

}  // namespace plugfest::roce
