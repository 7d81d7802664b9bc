// The table of transitions.
#include "fabric/roce/qp/queue_pair_states.h"

#include <span>

namespace plugfest::roce {

namespace {

struct Transition {
  ibv_qp_state from;
  ibv_qp_state to;
  int needed;
  int taken;  ///< in addition
};

constexpr int kPlace = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kIdentity = kPlace | IBV_QP_ACCESS_FLAGS;
constexpr int kRuntime = IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
constexpr int kPeer = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kRepetition =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;

constexpr Transition kReliable[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kIdentity, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kIdentity},
    {IBV_QPS_INIT, IBV_QPS_RTR, kPeer | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     kRuntime | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRuntime | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRuntime | IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     kRuntime | kRepetition | IBV_QP_PORT | IBV_QP_AV | IBV_QP_PKEY_INDEX | IBV_QP_MIN_RNR_TIMER},
};

constexpr Transition kUnreliable[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kIdentity, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kIdentity},
    {IBV_QPS_INIT, IBV_QPS_RTR, kPeer, IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, kRuntime},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRuntime},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRuntime},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0, kRuntime | IBV_QP_AV | IBV_QP_PKEY_INDEX},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS},
};

constexpr Transition kDatagram[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, kPlace | IBV_QP_QKEY, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kPlace | IBV_QP_QKEY},
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
      return kReliable;
    case IBV_QPT_UC:
      return kUnreliable;
    case IBV_QPT_UD:
      return kDatagram;
    default:
      return {};
  }
}

}  // namespace

bool transition_is_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask) {
  mask &= ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return mask == 0;
  for (const Transition& transition : transitions_of(type))
    if (transition.from == from && transition.to == to)
      return (mask & transition.needed) == transition.needed && (mask & ~(transition.needed | transition.taken)) == 0;
  return false;
}

}  // namespace plugfest::roce
