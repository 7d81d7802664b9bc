// The extended polling API: ibv_start_poll, ibv_next_poll, ibv_end_poll, ibv_wc_read_*.
#pragma once

#include <infiniband/verbs.h>

namespace plugfest::roce::verbs {

/// Sets the function pointers of a completion queue. They use current_completion_of(queue). Unsupported fields
/// (timestamps, VLAN, flow tag, tag matching) have no reader; creating a queue with them fails.
void install_extended_polling(ibv_cq_ex& queue);

/// The wc_flags (IBV_WC_EX_WITH_…) that a queue may be created with.
inline constexpr unsigned long kSupportedCompletionFields = IBV_WC_STANDARD_FLAGS;

/// The completion that the last ibv_start_poll or ibv_next_poll returned. Defined in completion.cc.
ibv_wc& current_completion_of(ibv_cq_ex& queue);

}  // namespace plugfest::roce::verbs
