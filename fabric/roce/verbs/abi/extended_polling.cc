#include "fabric/roce/verbs/abi/extended_polling.h"

#include <cerrno>

namespace plugfest::roce::verbs {
namespace {

int poll_one(ibv_cq_ex* queue) {
  ibv_wc& completion = current_completion_of(*queue);
  const int count = ibv_poll_cq(ibv_cq_ex_to_cq(queue), 1, &completion);
  if (count < 0) return EIO;
  if (count == 0) return ENOENT;
  queue->wr_id = completion.wr_id;
  queue->status = completion.status;
  return 0;
}

}  // namespace

void install_extended_polling(ibv_cq_ex& queue) {
  queue.start_poll = [](ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
    if (attributes != nullptr && attributes->comp_mask != 0) return EINVAL;
    return poll_one(cq);
  };
  queue.next_poll = [](ibv_cq_ex* cq) { return poll_one(cq); };
  queue.end_poll = [](ibv_cq_ex*) {};
  queue.read_opcode = [](ibv_cq_ex* cq) { return current_completion_of(*cq).opcode; };
  queue.read_vendor_err = [](ibv_cq_ex* cq) { return current_completion_of(*cq).vendor_err; };
  queue.read_byte_len = [](ibv_cq_ex* cq) { return current_completion_of(*cq).byte_len; };
  queue.read_imm_data = [](ibv_cq_ex* cq) { return current_completion_of(*cq).imm_data; };
  queue.read_qp_num = [](ibv_cq_ex* cq) { return current_completion_of(*cq).qp_num; };
  queue.read_src_qp = [](ibv_cq_ex* cq) { return current_completion_of(*cq).src_qp; };
  queue.read_wc_flags = [](ibv_cq_ex* cq) { return current_completion_of(*cq).wc_flags; };
  queue.read_slid = [](ibv_cq_ex* cq) -> uint32_t { return current_completion_of(*cq).slid; };
  queue.read_sl = [](ibv_cq_ex* cq) { return current_completion_of(*cq).sl; };
  queue.read_dlid_path_bits = [](ibv_cq_ex* cq) { return current_completion_of(*cq).dlid_path_bits; };
}

}  // namespace plugfest::roce::verbs
