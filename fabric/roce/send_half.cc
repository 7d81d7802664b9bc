// What all transports have in common when they send.
#include "fabric/roce/send_half.h"

#include "fabric/roce/nic_engine.h"
#include "fabric/roce/queue_pair_engine.h"

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
    default:
      if (first && last) return Operation::kSendOnly;
      if (first) return Operation::kSendFirst;
      return last ? Operation::kSendLast : Operation::kSendMiddle;
  }
}

void SendHalf::announce_if_drained() {
  if (!announce_drained_ || !drained()) return;
  announce_drained_ = false;
  connection_.queue_pair.announce(IBV_EVENT_SQ_DRAINED);
}

void SendHalf::complete_oldest(ibv_wc_status status) {
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

bool SendHalf::find_memory(std::uint64_t number, const SendRequest& request, Pieces& pieces) const {
  if (request.is_inline) {
    pieces.set(queue_.inline_bytes_of(number), request.length);
    return true;
  }
  // Reading the program's memory needs no right; where a response goes, writing does.
  const unsigned needed = request.awaits_response() ? IBV_ACCESS_LOCAL_WRITE : 0;
  return pieces.resolve(connection_.nic.memory(), connection_.domain,
                        {queue_.segments_of(number), request.segment_count}, needed);
}

}  // namespace plugfest::roce
