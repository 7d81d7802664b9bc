// The ring of posted sends.
#include "fabric/roce/send_queue.h"

#include <cerrno>
#include <cstring>

namespace plugfest::roce {

SendQueue::SendQueue(std::uint32_t max_requests, std::uint32_t max_segments, std::uint32_t max_inline_bytes)
    : max_requests_(max_requests),
      max_segments_(max_segments),
      max_inline_bytes_(max_inline_bytes),
      requests_(make_lazy_array<SendRequest>(max_requests)),
      segments_(make_lazy_array<ibv_sge>(std::size_t{max_requests} * max_segments)),
      inline_bytes_(make_lazy_array<std::byte>(std::size_t{max_requests} * max_inline_bytes)) {}

int SendQueue::prepare(const ibv_send_wr& request, bool signal_all) {
  if (full()) return ENOMEM;
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > max_segments_) {
    // Inline data are gathered at once, so only their length counts.
    if (request.num_sge < 0 || (request.send_flags & IBV_SEND_INLINE) == 0) return EINVAL;
  }
  SendRequest& kept = (*this)[end_];
  kept = {};
  kept.wr_id = request.wr_id;
  kept.opcode = request.opcode;
  kept.signaled = signal_all || (request.send_flags & IBV_SEND_SIGNALED) != 0;
  kept.solicited = (request.send_flags & IBV_SEND_SOLICITED) != 0;
  kept.fenced = (request.send_flags & IBV_SEND_FENCE) != 0;
  kept.is_inline = (request.send_flags & IBV_SEND_INLINE) != 0 && !kept.awaits_response();
  kept.immediate_or_key = request.imm_data;
  if (kept.is_atomic()) {
    kept.remote_address = request.wr.atomic.remote_addr;
    kept.remote_key = request.wr.atomic.rkey;
    const bool compares = kept.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    kept.swap_or_add = compares ? request.wr.atomic.swap : request.wr.atomic.compare_add;
    kept.compare = compares ? request.wr.atomic.compare_add : 0;
  } else {
    kept.remote_address = request.wr.rdma.remote_addr;
    kept.remote_key = request.wr.rdma.rkey;
  }
  std::uint64_t length = 0;
  for (int i = 0; i < request.num_sge; ++i) length += request.sg_list[i].length;
  if (length > kLargestMessageBytes) return EINVAL;
  if (kept.is_atomic() && length != sizeof(std::uint64_t)) return EINVAL;
  kept.length = static_cast<std::uint32_t>(length);
  if (kept.is_inline) {
    if (length > max_inline_bytes_) return EINVAL;
    std::byte* to = inline_bytes_of(end_);
    for (int i = 0; i < request.num_sge; ++i) {
      const ibv_sge& segment = request.sg_list[i];
      if (segment.length > 0) std::memcpy(to, reinterpret_cast<const void*>(segment.addr), segment.length);
      to += segment.length;
    }
  } else if (request.num_sge > 0) {
    kept.segment_count = static_cast<std::uint32_t>(request.num_sge);
    std::memcpy(segments_.get() + (end_ % max_requests_) * max_segments_, request.sg_list,
                kept.segment_count * sizeof(ibv_sge));
  }
  return 0;
}

}  // namespace plugfest::roce
