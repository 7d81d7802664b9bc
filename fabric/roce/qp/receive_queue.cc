// Posts and takes receives.
#include "fabric/roce/qp/receive_queue.h"

#include <algorithm>
#include <cerrno>

namespace plugfest::roce {

ReceiveQueue::ReceiveQueue(std::uint32_t max_receives, std::uint32_t max_segments)
    : max_receives_(max_receives),
      max_segments_(max_segments),
      entries_(make_lazy_array<Entry>(max_receives)),
      segments_(make_lazy_array<ibv_sge>(std::size_t{max_receives} * max_segments)) {}

int ReceiveQueue::post(ibv_recv_wr* list, ibv_recv_wr** bad) {
  const std::lock_guard lock(mutex_);
  for (; list != nullptr; list = list->next) {
    const bool full = posted_ - taken_ == max_receives_;
    const bool too_long = list->num_sge < 0 || static_cast<std::uint32_t>(list->num_sge) > max_segments_;
    if (full || too_long) {
      *bad = list;
      return full ? ENOMEM : EINVAL;
    }
    const std::size_t index = posted_ % max_receives_;
    entries_[index] = {list->wr_id, static_cast<std::uint32_t>(list->num_sge)};
    std::copy_n(list->sg_list, list->num_sge, segments_.get() + index * max_segments_);
    ++posted_;
  }
  return 0;
}

bool ReceiveQueue::take(PostedReceive& receive) {
  const std::lock_guard lock(mutex_);
  if (posted_ == taken_) return false;
  const std::size_t index = taken_ % max_receives_;
  receive.wr_id = entries_[index].wr_id;
  receive.segment_count = static_cast<int>(entries_[index].segment_count);
  std::copy_n(segments_.get() + index * max_segments_, entries_[index].segment_count, receive.segments);
  ++taken_;
  if (limit_ != 0 && posted_ - taken_ < limit_) {
    limit_ = 0;
    if (limit_reached_ != nullptr) limit_reached_(limit_context_);
  }
  return true;
}

void ReceiveQueue::set_limit(std::uint32_t limit, void (*limit_reached)(void*), void* context) {
  const std::lock_guard lock(mutex_);
  limit_ = limit;
  limit_reached_ = limit_reached;
  limit_context_ = context;
}

std::uint32_t ReceiveQueue::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

}  // namespace plugfest::roce
