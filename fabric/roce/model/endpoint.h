// One side of the model test: a NIC, its queue pairs, and their memory.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/model/memory.h"
#include "fabric/roce/nic.h"
#include "fabric/roce/qp/completion_queue.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/receive_queue.h"

namespace plugfest::roce::model {

/// First wr_id of send requests; the wr_ids of receives start from 0.
constexpr std::uint64_t kFirstSendId = 1ull << 32;
constexpr std::uint32_t kQKey = 0x1ee7;

/// Parameters of both sides, which depend on the seed only.
struct Setting {
  ibv_qp_type type = IBV_QPT_RC;
  unsigned queue_pairs = 1;
  unsigned requests = 0;  ///< per queue pair
  ibv_mtu path_mtu = IBV_MTU_1024;
  std::uint8_t reads_in_flight = 1;
  std::uint8_t rnr_timer = 1;
  std::uint32_t psn = 0;
  std::uint32_t max_message_bytes = 0;
  std::size_t memory_bytes = 16 << 20;
  ibv_qp_cap capabilities = {};
};

/// The receives of a side.
struct Receives {
  std::vector<std::vector<Range>> pieces;  ///< memory of each receive, by wr_id
  std::set<std::uint64_t> open;            ///< wr_ids of receives that have not completed
  bool may_flush = false;                  ///< the queue pairs are in ERR
};

/// Destroys the NIC before the memory that the NIC accesses.
class Endpoint {
 public:
  Endpoint(std::string address, const Setting& setting, const FaultPlan& faults, Random& random);

  ibv_sge segment_of(const Range& range) const { return {memory.address_of(range), range.length, local->key()}; }

  /// Number of asynchronous events that report an error.
  unsigned failures() const { return failures_; }

  const std::string address;
  ModelMemory memory;

 private:
  std::atomic<unsigned> failures_{0};  ///< written by the NIC's thread until the NIC is destroyed

 public:
  Nic nic;
  ProtectionDomain domain;
  std::unique_ptr<CompletionQueue> send_completions;
  std::unique_ptr<CompletionQueue> receive_completions;  ///< null: send_completions serves receives, too
  std::unique_ptr<ReceiveQueue> shared;                  ///< null: each queue pair has its own receive queue
  std::unique_ptr<MemoryRegion> local;                   ///< all memory, for requests of this side
  std::unique_ptr<MemoryRegion> remote;                  ///< all memory, for requests of the peer
  std::vector<std::unique_ptr<QueuePair>> queue_pairs;
  Receives receives;
};

}  // namespace plugfest::roce::model
