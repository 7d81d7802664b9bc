// The ring of posted sends.
#include "fabric/roce/qp/send_queue.h"

#include <cerrno>
#include <cstring>

namespace plugfest::roce {

namespace {

int keep_binding(const ibv_send_wr& request, SendRequest& kept) {
  const auto& binding = request.bind_mw;
  constexpr std::uint32_t kProgramsPart = 0xff;  // of a key; the rest says which window it is
  if (binding.mw == nullptr || ((binding.mw->rkey ^ binding.rkey) & ~kProgramsPart) != 0) return EINVAL;
  if (binding.bind_info.length > 0 && binding.bind_info.mr == nullptr) return EINVAL;
  kept.remote_key = binding.rkey;
  kept.remote_address = binding.bind_info.addr;
  kept.compare = binding.bind_info.length;
  kept.swap_or_add = binding.bind_info.mr == nullptr ? 0 : binding.bind_info.mr->lkey;
  kept.immediate = binding.bind_info.mw_access_flags;
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
  SendRequest& kept = (*this)[end_];
  kept = {};
  kept.wr_id = request.wr_id;
  kept.opcode = request.opcode;
  kept.signaled = signal_all || (request.send_flags & IBV_SEND_SIGNALED) != 0;
  kept.fenced = (request.send_flags & IBV_SEND_FENCE) != 0;
  if (request.opcode == IBV_WR_BIND_MW) return keep_binding(request, kept);
  if (request.opcode == IBV_WR_LOCAL_INV) {
    kept.remote_key = request.invalidate_rkey;
    return 0;
  }
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > max_segments_) {
    // Inline data are gathered at once, so only their length counts.
    if (request.num_sge < 0 || (request.send_flags & IBV_SEND_INLINE) == 0) return EINVAL;
  }
  kept.solicited = (request.send_flags & IBV_SEND_SOLICITED) != 0;
  kept.is_inline = (request.send_flags & IBV_SEND_INLINE) != 0 && !kept.awaits_response();
  kept.immediate = request.imm_data;
  if (kept.is_atomic()) {
    kept.remote_address = request.wr.atomic.remote_addr;
    kept.remote_key = request.wr.atomic.rkey;
    const bool compares = kept.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    kept.swap_or_add = compares ? request.wr.atomic.swap : request.wr.atomic.compare_add;
    kept.compare = compares ? request.wr.atomic.compare_add : 0;
  } else if (kept.opcode == IBV_WR_SEND_WITH_INV) {
    kept.remote_key = request.invalidate_rkey;
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
