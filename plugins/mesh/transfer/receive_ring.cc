// Lists of receives.
#include "plugins/mesh/transfer/receive_ring.h"

namespace mesh {

ReceiveRing::ReceiveRing(std::uint32_t count, std::size_t bytes, const StagingMemory& memory)
    : receives_(bytes > 0 ? count : kBatch), buffers_(bytes > 0 ? count : 0), used_(count) {
  for (std::size_t i = 0; i < receives_.size(); ++i) {
    receives_[i] = {
        .wr_id = i, .next = (i + 1) % kBatch != 0 ? &receives_[i + 1] : nullptr, .sg_list = nullptr, .num_sge = 0};
  }
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    buffers_[i] = {.addr = reinterpret_cast<std::uintptr_t>(memory.data() + i * bytes),
                   .length = static_cast<std::uint32_t>(bytes),
                   .lkey = memory.local_key()};
    receives_[i].sg_list = &buffers_[i];
    receives_[i].num_sge = 1;
  }
}

int ReceiveRing::post_all(QueuePair& queue_pair) {
  while (used_ > 0) {
    if (const int error = post_batch(queue_pair)) return error;
  }
  return 0;
}

int ReceiveRing::post_batch(QueuePair& queue_pair) {
  const int error = queue_pair.post_receive(&receives_[next_]);
  next_ = next_ + kBatch == receives_.size() ? 0 : next_ + kBatch;
  used_ -= kBatch;
  return error;
}

}  // namespace mesh
