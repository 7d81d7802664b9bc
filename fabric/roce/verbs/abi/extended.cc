#include "fabric/roce/verbs/abi/extended.h"

#include <time.h>

#include <cerrno>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/system/clock.h"

namespace plugfest::roce::verbs {
namespace {

int poll_one(ibv_cq_ex* queue) {
  const int count = take_completion(*queue);
  if (count < 0) return EIO;
  if (count == 0) return ENOENT;
  const ibv_wc& completion = current_completion_of(*queue).completion;
  queue->wr_id = completion.wr_id;
  queue->status = completion.status;
  return 0;
}

/// A reader of one member of the current completion.
template <auto kMember, typename Value>
Value read(ibv_cq_ex* queue) {
  return current_completion_of(*queue).completion.*kMember;
}

/// Nanoseconds of CLOCK_REALTIME at the time of the current completion.
std::uint64_t read_wall_clock(ibv_cq_ex* queue) {
  const Nanoseconds age = now_ns() - current_completion_of(*queue).time_ns;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec * 1'000'000'000 + now.tv_nsec - age);
}

}  // namespace

void install_extended_polling(ibv_cq_ex& queue, std::uint64_t fields) {
  queue.start_poll = [](ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
    if (attributes != nullptr && attributes->comp_mask != 0) return EINVAL;
    if (!lock_polling(*cq)) return EIO;
    const int error = poll_one(cq);
    if (error != 0) unlock_polling(*cq);
    return error;
  };
  queue.next_poll = [](ibv_cq_ex* cq) { return poll_one(cq); };
  queue.end_poll = [](ibv_cq_ex* cq) { unlock_polling(*cq); };
  queue.read_opcode = read<&ibv_wc::opcode, ibv_wc_opcode>;
  queue.read_vendor_err = read<&ibv_wc::vendor_err, std::uint32_t>;
  queue.read_byte_len = read<&ibv_wc::byte_len, std::uint32_t>;
  queue.read_imm_data = [](ibv_cq_ex* cq) { return current_completion_of(*cq).completion.imm_data; };
  queue.read_qp_num = read<&ibv_wc::qp_num, std::uint32_t>;
  queue.read_src_qp = read<&ibv_wc::src_qp, std::uint32_t>;
  queue.read_wc_flags = read<&ibv_wc::wc_flags, unsigned int>;
  queue.read_slid = read<&ibv_wc::slid, std::uint32_t>;
  queue.read_sl = read<&ibv_wc::sl, std::uint8_t>;
  queue.read_dlid_path_bits = read<&ibv_wc::dlid_path_bits, std::uint8_t>;
  if ((fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0)
    queue.read_completion_ts = [](ibv_cq_ex* cq) {
      return static_cast<std::uint64_t>(current_completion_of(*cq).time_ns);
    };
  if ((fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0)
    queue.read_completion_wallclock_ns = read_wall_clock;
}

void ExtendedPosting::start() {
  pthread_mutex_lock(&mutex_);
  clear();
}

void ExtendedPosting::clear() {
  requests_.clear();
  segments_.clear();
  inline_bytes_.clear();
  error_ = 0;
}

ibv_send_wr& ExtendedPosting::add(const ibv_qp_ex& queue_pair, ibv_wr_opcode opcode) {
  Request& request = requests_.emplace_back();
  request.wr.wr_id = queue_pair.wr_id;
  request.wr.send_flags = queue_pair.wr_flags;
  request.wr.opcode = opcode;
  request.first_segment = segments_.size();
  return request.wr;
}

ibv_send_wr& ExtendedPosting::current() {
  if (!requests_.empty()) return requests_.back().wr;
  record_error(EINVAL);
  return discarded_;
}

void ExtendedPosting::set_segments(const ibv_sge* segments, std::size_t count) {
  segments_.insert(segments_.end(), segments, segments + count);
  current().num_sge = static_cast<int>(count);
}

void ExtendedPosting::set_inline(const ibv_data_buf* buffers, std::size_t count) {
  ibv_send_wr& wr = current();
  std::size_t length = 0;
  const std::size_t offset = inline_bytes_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto* bytes = static_cast<const std::uint8_t*>(buffers[i].addr);
    inline_bytes_.insert(inline_bytes_.end(), bytes, bytes + buffers[i].length);
    length += buffers[i].length;
  }
  segments_.push_back({offset, static_cast<std::uint32_t>(length), 0});
  wr.num_sge = 1;
  wr.send_flags |= IBV_SEND_INLINE;
  if (!requests_.empty()) requests_.back().is_inline = true;
}

int ExtendedPosting::complete(ibv_qp& queue_pair) {
  int result = error_;
  if (result == 0 && !requests_.empty()) {
    // The vectors do not grow any more: pointers into them are stable.
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      Request& request = requests_[i];
      request.wr.sg_list = segments_.data() + request.first_segment;
      request.wr.next = i + 1 < requests_.size() ? &requests_[i + 1].wr : nullptr;
      if (request.is_inline) request.wr.sg_list->addr += reinterpret_cast<std::uintptr_t>(inline_bytes_.data());
    }
    result = post_all(queue_pair, requests_.front().wr);
  }
  clear();
  pthread_mutex_unlock(&mutex_);
  return result;
}

void ExtendedPosting::abort() {
  clear();
  pthread_mutex_unlock(&mutex_);
}

namespace {

// The ibv_wr_* setters return void: errors are recorded, and ibv_wr_complete returns the first one.
template <typename Body>
void record_errors(ibv_qp_ex* queue_pair, Body body) noexcept {
  ExtendedPosting& posting = extended_posting_of(*queue_pair);
  try {
    body(posting);
  } catch (...) {
    posting.record_error(errno_of_current_exception());
  }
}

void add_rdma(ibv_qp_ex* queue_pair, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t remote_address,
              __be32 immediate = 0) {
  record_errors(queue_pair, [&](ExtendedPosting& posting) {
    ibv_send_wr& wr = posting.add(*queue_pair, opcode);
    wr.wr.rdma.remote_addr = remote_address;
    wr.wr.rdma.rkey = rkey;
    wr.imm_data = immediate;
  });
}

void add_atomic(ibv_qp_ex* queue_pair, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t remote_address,
                std::uint64_t compare_or_add, std::uint64_t swap) {
  record_errors(queue_pair, [&](ExtendedPosting& posting) {
    ibv_send_wr& wr = posting.add(*queue_pair, opcode);
    wr.wr.atomic.remote_addr = remote_address;
    wr.wr.atomic.rkey = rkey;
    wr.wr.atomic.compare_add = compare_or_add;
    wr.wr.atomic.swap = swap;
  });
}

void add_send(ibv_qp_ex* queue_pair, ibv_wr_opcode opcode, __be32 immediate) {
  record_errors(queue_pair, [&](ExtendedPosting& posting) { posting.add(*queue_pair, opcode).imm_data = immediate; });
}

void add_invalidating(ibv_qp_ex* queue_pair, ibv_wr_opcode opcode, std::uint32_t rkey) {
  record_errors(queue_pair, [&](ExtendedPosting& posting) { posting.add(*queue_pair, opcode).invalidate_rkey = rkey; });
}

void add_unsupported(ibv_qp_ex* queue_pair) {
  record_errors(queue_pair, [](ExtendedPosting& posting) { posting.record_error(EOPNOTSUPP); });
}

}  // namespace

std::uint64_t extended_send_operations(ibv_qp_type type) {
  std::uint64_t offered = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  if (type != IBV_QPT_UD)
    offered |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_BIND_MW |
               IBV_QP_EX_WITH_LOCAL_INV;
  if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND)
    offered |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
               IBV_QP_EX_WITH_SEND_WITH_INV;
  return offered;
}

void install_extended_posting(ibv_qp_ex& queue_pair) {
  queue_pair.wr_start = [](ibv_qp_ex* qp) { extended_posting_of(*qp).start(); };
  queue_pair.wr_complete = [](ibv_qp_ex* qp) { return extended_posting_of(*qp).complete(qp->qp_base); };
  queue_pair.wr_abort = [](ibv_qp_ex* qp) { extended_posting_of(*qp).abort(); };

  queue_pair.wr_send = [](ibv_qp_ex* qp) { add_send(qp, IBV_WR_SEND, 0); };
  queue_pair.wr_send_imm = [](ibv_qp_ex* qp, __be32 immediate) { add_send(qp, IBV_WR_SEND_WITH_IMM, immediate); };
  queue_pair.wr_rdma_write = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
    add_rdma(qp, IBV_WR_RDMA_WRITE, rkey, address);
  };
  queue_pair.wr_rdma_write_imm = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t address, __be32 immediate) {
    add_rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address, immediate);
  };
  queue_pair.wr_rdma_read = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
    add_rdma(qp, IBV_WR_RDMA_READ, rkey, address);
  };
  queue_pair.wr_atomic_cmp_swp = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t compare, uint64_t swap) {
    add_atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address, compare, swap);
  };
  queue_pair.wr_atomic_fetch_add = [](ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t add) {
    add_atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address, add, 0);
  };

  queue_pair.wr_set_sge = [](ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
    const ibv_sge segment = {address, length, lkey};
    record_errors(qp, [&](ExtendedPosting& posting) { posting.set_segments(&segment, 1); });
  };
  queue_pair.wr_set_sge_list = [](ibv_qp_ex* qp, size_t count, const ibv_sge* segments) {
    record_errors(qp, [&](ExtendedPosting& posting) { posting.set_segments(segments, count); });
  };
  queue_pair.wr_set_inline_data = [](ibv_qp_ex* qp, void* address, size_t length) {
    const ibv_data_buf buffer = {address, length};
    record_errors(qp, [&](ExtendedPosting& posting) { posting.set_inline(&buffer, 1); });
  };
  queue_pair.wr_set_inline_data_list = [](ibv_qp_ex* qp, size_t count, const ibv_data_buf* buffers) {
    record_errors(qp, [&](ExtendedPosting& posting) { posting.set_inline(buffers, count); });
  };
  queue_pair.wr_set_ud_addr = [](ibv_qp_ex* qp, ibv_ah* handle, uint32_t remote_qpn, uint32_t remote_qkey) {
    record_errors(qp, [&](ExtendedPosting& posting) {
      auto& address = posting.current().wr.ud;
      address.ah = handle;
      address.remote_qpn = remote_qpn;
      address.remote_qkey = remote_qkey;
    });
  };

  queue_pair.wr_set_xrc_srqn = [](ibv_qp_ex* qp, uint32_t number) {
    record_errors(qp, [&](ExtendedPosting& posting) { posting.current().qp_type.xrc.remote_srqn = number; });
  };

  queue_pair.wr_bind_mw = [](ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* binding) {
    record_errors(qp, [&](ExtendedPosting& posting) {
      auto& bind = posting.add(*qp, IBV_WR_BIND_MW).bind_mw;
      bind.mw = mw;
      bind.rkey = rkey;
      bind.bind_info = *binding;
    });
  };
  queue_pair.wr_local_inv = [](ibv_qp_ex* qp, uint32_t rkey) { add_invalidating(qp, IBV_WR_LOCAL_INV, rkey); };
  queue_pair.wr_send_inv = [](ibv_qp_ex* qp, uint32_t rkey) { add_invalidating(qp, IBV_WR_SEND_WITH_INV, rkey); };

  // Not supported: ibv_wr_complete fails.
  queue_pair.wr_send_tso = [](ibv_qp_ex* qp, void*, uint16_t, uint16_t) { add_unsupported(qp); };
}

}  // namespace plugfest::roce::verbs
