// What the requesters of all transports have in common.
#include "fabric/roce/qp/requester.h"

#include "fabric/roce/memory/memory_window.h"
#include "fabric/roce/qp/queue_pair_engine.h"

namespace plugfest::roce {

namespace {

ibv_wc_opcode completion_opcode(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    case IBV_WR_BIND_MW:
      return IBV_WC_BIND_MW;
    case IBV_WR_LOCAL_INV:
      return IBV_WC_LOCAL_INV;
    default:
      return IBV_WC_SEND;
  }
}

}  // namespace

Operation operation_of(ibv_wr_opcode opcode, bool first, bool last) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      if (first && last) return Operation::kWriteOnly;
      if (first) return Operation::kWriteFirst;
      return last ? Operation::kWriteLast : Operation::kWriteMiddle;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      if (first && last) return Operation::kWriteOnlyImmediate;
      if (first) return Operation::kWriteFirst;
      return last ? Operation::kWriteLastImmediate : Operation::kWriteMiddle;
    case IBV_WR_SEND_WITH_IMM:
      if (first && last) return Operation::kSendOnlyImmediate;
      if (first) return Operation::kSendFirst;
      return last ? Operation::kSendLastImmediate : Operation::kSendMiddle;
    case IBV_WR_SEND_WITH_INV:
      if (first && last) return Operation::kSendOnlyInvalidate;
      if (first) return Operation::kSendFirst;
      return last ? Operation::kSendLastInvalidate : Operation::kSendMiddle;
    default:
      if (first && last) return Operation::kSendOnly;
      if (first) return Operation::kSendFirst;
      return last ? Operation::kSendLast : Operation::kSendMiddle;
  }
}

void Requester::announce_if_drained() {
  if (!announce_drained_ || !drained()) return;
  announce_drained_ = false;
  connection_.queue_pair.announce(IBV_EVENT_SQ_DRAINED);
}

void Requester::complete_oldest(ibv_wc_status status) {
  const SendRequest& request = queue_[queue_.oldest()];
  if (request.signaled || status != IBV_WC_SUCCESS) {
    ibv_wc completion = {};
    completion.wr_id = request.wr_id;
    completion.status = status;
    completion.opcode = completion_opcode(request.opcode);
    completion.byte_len = request.length;
    completion.qp_num = connection_.number;
    completions_.push(completion, status != IBV_WC_SUCCESS);
  }
  queue_.pop();
}

ibv_wc_status Requester::execute_locally(SendRequest& request) {
  if (request.done) return IBV_WC_SUCCESS;
  MemoryWindow* const window = connection_.nic.memory.window_at(request.remote_key);
  if (request.opcode == IBV_WR_LOCAL_INV) {
    request.done = window != nullptr && window->invalidate(request.remote_key, connection_.number);
    return request.done ? IBV_WC_SUCCESS : IBV_WC_LOC_QP_OP_ERR;
  }
  const WindowBinding binding = {.key = request.remote_key,
                                 .region_key = static_cast<std::uint32_t>(request.swap_or_add),
                                 .address = request.remote_address,
                                 .length = request.compare,
                                 .access = request.immediate};
  request.done = window != nullptr && window->bind(binding, connection_.domain, connection_.number);
  return request.done ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR;
}

bool Requester::find_memory(std::uint64_t number, const SendRequest& request, ScatterGatherList& pieces) const {
  if (request.is_inline) {
    pieces.set(queue_.inline_bytes_of(number), request.length);
    return true;
  }
  // A response is written into the memory, which needs a right; reading the memory needs none.
  const unsigned needed = request.awaits_response() ? IBV_ACCESS_LOCAL_WRITE : 0;
  return pieces.resolve(connection_.nic.memory, connection_.domain, {queue_.segments_of(number), request.segment_count},
                        needed);
}

}  // namespace plugfest::roce
