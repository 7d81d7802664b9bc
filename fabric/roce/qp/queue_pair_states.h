// Which attributes a queue pair needs and takes on its way from state to state.
// Source: InfiniBand Architecture Specification vol. 1, table 91.
#pragma once

#include <infiniband/verbs.h>

namespace plugfest::roce {

/// True if verbs allows the transition with these bits of ibv_qp_attr_mask, IBV_QP_STATE and IBV_QP_CUR_STATE aside.
bool transition_is_allowed(ibv_qp_type type, ibv_qp_state from, ibv_qp_state to, int mask);

}  // namespace plugfest::roce
