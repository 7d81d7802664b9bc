// The extended poll calls (ibv_start_poll, ibv_next_poll, ibv_wc_read_*): one completion at a time, read field by
// field.
#pragma once

#include <infiniband/verbs.h>

namespace plugfest::roce::verbs {

/// Sets the function pointers of a completion queue whose lazy_completion_of() finds the completion being read.
/// Fields that the NIC has no value for (timestamps, VLAN, flow tag, tag matching) have no reader: creating a queue
/// that asks for them fails.
void install_lazy_poll(ibv_cq_ex& queue);

/// wc_flags (IBV_WC_EX_WITH_…) that a queue may be created with.
inline constexpr unsigned long kLazyPollFields = IBV_WC_STANDARD_FLAGS;

/// Defined beside the completion queue's type.
ibv_wc& lazy_completion_of(ibv_cq_ex& queue);

}  // namespace plugfest::roce::verbs
