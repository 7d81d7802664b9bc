#include "fabric/roce/qp/work_queues.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

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
  std::unique_lock lock(mutex_);
  if (posted_ == taken_) return false;
  const std::size_t index = taken_ % max_receives_;
  receive.wr_id = entries_[index].wr_id;
  receive.segment_count = static_cast<int>(entries_[index].segment_count);
  std::copy_n(segments_.get() + index * max_segments_, entries_[index].segment_count, receive.segments);
  ++taken_;
  if (limit_ != 0 && posted_ - taken_ < limit_) {
    limit_ = 0;
    const auto limit_reached = limit_reached_;
    void* const context = limit_context_;
    lock.unlock();
    if (limit_reached != nullptr) limit_reached(context);
  }
  return true;
}

void ReceiveQueue::set_limit(std::uint32_t limit, void (*limit_reached)(void*), void* context) {
  const std::lock_guard lock(mutex_);
  limit_ = limit;
  limit_reached_ = limit_reached;
  limit_context_ = context;
}

namespace {

int copy_binding(const ibv_send_wr& request, SendRequest& copy) {
  const auto& binding = request.bind_mw;
  // Bits of a key that the program chooses. The other bits identify the window.
  constexpr std::uint32_t kProgramBits = 0xff;
  if (binding.mw == nullptr || ((binding.mw->rkey ^ binding.rkey) & ~kProgramBits) != 0) return EINVAL;
  if (binding.bind_info.length > 0 && binding.bind_info.mr == nullptr) return EINVAL;
  copy.binding = {.key = binding.rkey,
                  .region_key = binding.bind_info.mr == nullptr ? 0 : binding.bind_info.mr->lkey,
                  .address = binding.bind_info.addr,
                  .length = binding.bind_info.length,
                  .access = binding.bind_info.mw_access_flags};
  return 0;
}

}  // namespace

SendQueue::SendQueue(std::uint32_t max_requests, std::uint32_t max_segments, std::uint32_t max_inline_bytes)
    : max_requests_(max_requests),
      max_segments_(max_segments),
      max_inline_bytes_(max_inline_bytes),
      requests_(make_lazy_array<SendRequest>(max_requests)),
      segments_(make_lazy_array<ibv_sge>(std::size_t{max_requests} * max_segments)),
      inline_bytes_(make_lazy_array<std::byte>(std::size_t{max_requests} * max_inline_bytes)) {}

int SendQueue::prepare(const ibv_send_wr& request, bool signal_all) {
  if (full()) return ENOMEM;
  SendRequest& copy = (*this)[end_];
  copy = {};
  copy.wr_id = request.wr_id;
  copy.opcode = request.opcode;
  copy.signaled = signal_all || (request.send_flags & IBV_SEND_SIGNALED) != 0;
  copy.fenced = (request.send_flags & IBV_SEND_FENCE) != 0;
  if (request.opcode == IBV_WR_BIND_MW) return copy_binding(request, copy);
  if (request.opcode == IBV_WR_LOCAL_INV) {
    copy.remote.key = request.invalidate_rkey;
    return 0;
  }
  copy.is_inline = (request.send_flags & IBV_SEND_INLINE) != 0 && !copy.awaits_response();
  // Inline data is copied now, so only its length is limited.
  const bool too_long = !copy.is_inline && static_cast<std::uint32_t>(request.num_sge) > max_segments_;
  if (request.num_sge < 0 || too_long) return EINVAL;
  copy.solicited = (request.send_flags & IBV_SEND_SOLICITED) != 0;
  copy.immediate = request.imm_data;
  if (copy.is_atomic()) {
    copy.remote.address = request.wr.atomic.remote_addr;
    copy.remote.key = request.wr.atomic.rkey;
    const bool compares = copy.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    copy.remote.swap_or_add = compares ? request.wr.atomic.swap : request.wr.atomic.compare_add;
    copy.remote.compare = compares ? request.wr.atomic.compare_add : 0;
  } else if (copy.opcode == IBV_WR_SEND_WITH_INV) {
    copy.remote.key = request.invalidate_rkey;
  } else {
    copy.remote.address = request.wr.rdma.remote_addr;
    copy.remote.key = request.wr.rdma.rkey;
  }
  std::uint64_t length = 0;
  for (int i = 0; i < request.num_sge; ++i) length += request.sg_list[i].length;
  if (length > kMaxMessageBytes) return EINVAL;
  if (copy.is_atomic() && length != sizeof(std::uint64_t)) return EINVAL;
  copy.length = static_cast<std::uint32_t>(length);
  if (copy.is_inline) {
    if (length > max_inline_bytes_) return EINVAL;
    std::byte* to = inline_bytes_of(end_);
    for (int i = 0; i < request.num_sge; ++i) {
      const ibv_sge& segment = request.sg_list[i];
      if (segment.length > 0) std::memcpy(to, reinterpret_cast<const void*>(segment.addr), segment.length);
      to += segment.length;
    }
  } else if (request.num_sge > 0) {
    copy.segment_count = static_cast<std::uint32_t>(request.num_sge);
    std::memcpy(segments_.get() + (end_ % max_requests_) * max_segments_, request.sg_list,
                copy.segment_count * sizeof(ibv_sge));
  }
  return 0;
}

}  // namespace plugfest::roce
