// The states of a queue pair: which attributes each transition takes, and what it changes.
#include "fabric/roce/qp/queue_pair.h"

#include <span>

namespace plugfest::roce {
namespace {

struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int needed;
  int allowed;  ///< attributes that are allowed in addition to `needed`
};

constexpr int kPortAttributes = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kInitAttributes = kPortAttributes | IBV_QP_ACCESS_FLAGS;
constexpr int kRtsAttributes = IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
constexpr int kPeerAttributes = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRetryAttributes =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;

constexpr Transition kReliable[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInitAttributes, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInitAttributes},
    {IBV_QPS_INIT, IBV_QPS_RTR, kPeerAttributes | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     kRtsAttributes | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRtsAttributes | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRtsAttributes | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     kRtsAttributes | kRetryAttributes | IBV_QP_PORT | IBV_QP_AV | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER},
};

constexpr Transition kUnreliable[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kInitAttributes, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInitAttributes},
    {IBV_QPS_INIT, IBV_QPS_RTR, kPeerAttributes, IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kRtsAttributes},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRtsAttributes},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRtsAttributes},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, kRtsAttributes | IBV_QP_AV | IBV_QP_PKEY_INDEX},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS},
};

constexpr Transition kDatagram[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kPortAttributes | IBV_QP_QKEY, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kPortAttributes | IBV_QP_QKEY},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_QKEY},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_QKEY},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_QKEY},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_QKEY},
};

std::span<const Transition> transitions_of(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return kReliable;
    case IBV_QPT_UC:
      return kUnreliable;
    case IBV_QPT_UD:
      return kDatagram;
    default:
      return {};
  }
}

// The attributes of a responder or requester that the two types of XRC do not have.
int not_needed_by(ibv_qp_type type) {
  if (type == IBV_QPT_XRC_SEND) return IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (type == IBV_QPT_XRC_RECV) return IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return 0;
}

}  // namespace

bool transition_is_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  mask &= ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return mask == 0;
  for (const Transition& transition : transitions_of(type))
    if (transition.from == from && transition.to == to) {
      const int needed = transition.needed & ~not_needed_by(type);
      return (mask & needed) == needed && (mask & ~(transition.needed | transition.allowed)) == 0;
    }
  return false;
}

}  // namespace plugfest::roce
