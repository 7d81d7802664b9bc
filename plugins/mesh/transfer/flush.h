// Makes what a NIC wrote to GPU memory visible to the GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "plugins/mesh/transfer/queue_pair.h"

namespace mesh {

/// A queue pair of a NIC that is connected to itself. A read through it is answered after the NIC's earlier writes have
/// reached the memory. Not thread-safe.
class Flush {
 public:
  /// `local`: an address of the device. Errors: Failure.
  Flush(const std::shared_ptr<const Device>& device, const Address& local, std::uint32_t depth);

  /// Reads the byte at `address`. Returns 0 or an error number.
  int post(std::uint64_t id, std::uint64_t address, std::uint32_t remote_key);
  /// As QueuePair::poll.
  int poll(std::span<ibv_wc> completions) { return queue_pair_.poll(completions); }

 private:
  StagingMemory target_;
  QueuePair queue_pair_;
};

}  // namespace mesh
