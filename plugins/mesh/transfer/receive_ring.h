// The posted receives of a queue pair.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugins/mesh/transfer/queue_pair.h"

namespace mesh {

/// Posts receives, and posts those that were used again, in batches. Receives are used in the order of posting, so the
/// lists of work requests are made only once. Not thread-safe.
class ReceiveRing {
 public:
  /// Receives of one batch.
  static constexpr std::uint32_t kBatch = 16;

  /// `count`: a multiple of kBatch. Receive number i has `bytes` bytes of `memory` from byte `i * bytes` on, and wr_id
  /// i. With `bytes` 0 the receives have no buffers and no numbers.
  ReceiveRing(std::uint32_t count, std::size_t bytes, const StagingMemory& memory);

  /// Posts all receives. Returns 0 or an error number.
  int post_all(QueuePair& queue_pair);
  /// Notes that the oldest posted receive was used.
  void use() { ++used_; }
  /// Posts a batch again if so many receives were used. Returns 0 or an error number.
  int post_used(QueuePair& queue_pair) { return used_ < kBatch ? 0 : post_batch(queue_pair); }

 private:
  int post_batch(QueuePair& queue_pair);

  std::vector<ibv_recv_wr> receives_;  ///< lists of kBatch; they refer to the buffers
  std::vector<ibv_sge> buffers_;
  std::uint32_t used_;  ///< number of receives that are not posted
  std::size_t next_ = 0;
};

}  // namespace mesh
