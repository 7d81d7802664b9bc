// Connects a queue pair to itself, and reads.
#include "plugins/mesh/transfer/flush.h"

namespace mesh {

Flush::Flush(const std::shared_ptr<const Device>& device, const Address& local, std::uint32_t depth)
    : target_(device, 1), queue_pair_(device, local, {.send = depth, .receive = 1}, IBV_ACCESS_REMOTE_READ) {
  // No packet leaves the NIC.
  queue_pair_.connect(queue_pair_.endpoint(), {.timeout = 16, .retry_count = 7});
}

int Flush::post(std::uint64_t id, std::uint64_t address, std::uint32_t remote_key) {
  ibv_sge entry = {.addr = reinterpret_cast<std::uintptr_t>(target_.data()), .length = 1, .lkey = target_.local_key()};
  ibv_send_wr read = {};
  read.wr_id = id;
  read.sg_list = &entry;
  read.num_sge = 1;
  read.opcode = IBV_WR_RDMA_READ;
  read.send_flags = IBV_SEND_SIGNALED;
  read.wr.rdma.remote_addr = address;
  read.wr.rdma.rkey = remote_key;
  return queue_pair_.post_send(&read);
}

}  // namespace mesh
