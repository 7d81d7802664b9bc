// The attributes that each state transition of a queue pair requires and allows.
// Source: InfiniBand Architecture Specification vol. 1, table 91.
#pragma once

#include <infiniband/verbs.h>

namespace plugfest::roce {

/// Whether verbs allows the transition with these bits of ibv_qp_attr_mask. IBV_QP_STATE and IBV_QP_CUR_STATE are
/// ignored.
bool transition_is_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

}  // namespace plugfest::roce
