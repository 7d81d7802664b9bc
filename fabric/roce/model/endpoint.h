// One side of the model test: a NIC, its queue pairs, and their actual and expected memory.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/nic.h"
#include "fabric/roce/qp/completion_queue.h"
#include "fabric/roce/qp/queue_pair.h"
#include "fabric/roce/qp/work_queues.h"

namespace plugfest::roce::model {

using Random = std::mt19937_64;

/// Returns a number from `least` to `most`, inclusive.
inline std::uint64_t draw(Random& random, std::uint64_t least, std::uint64_t most) {
  return std::uniform_int_distribution<std::uint64_t>(least, most)(random);
}
inline bool chance(Random& random, double probability) { return std::bernoulli_distribution(probability)(random); }

struct Range {
  std::size_t offset = 0;
  std::uint32_t length = 0;

  bool overlaps(const Range& other) const {
    return offset < other.offset + other.length && other.offset < offset + length;
  }
};

/// Memory that a NIC reads and writes (actual), and a copy that the model maintains (expected).
class ModelMemory {
 public:
  /// Fills both with the same random bytes.
  ModelMemory(std::size_t bytes, Random& random);

  /// Reserves memory at a random distance behind the previous reservation.
  Range reserve(Random& random, std::uint32_t length, std::size_t alignment = 1);
  /// Reserves `length` bytes in up to `max_pieces` pieces; pieces may be empty.
  std::vector<Range> reserve_pieces(Random& random, std::uint32_t length, unsigned max_pieces);

  std::span<std::uint8_t> actual(const Range& range) { return std::span(actual_).subspan(range.offset, range.length); }
  std::span<std::uint8_t> expected(const Range& range) {
    return std::span(expected_).subspan(range.offset, range.length);
  }
  bool matches(const Range& range);
  /// Writes `bytes` to the expected content of `pieces`, in order.
  void scatter_expected(const std::vector<Range>& pieces, std::span<const std::uint8_t> bytes);
  /// Makes the actual content the expected content.
  void accept(const Range& range);

  std::uint8_t* data() { return actual_.data(); }
  std::size_t size() const { return actual_.size(); }
  std::uint64_t address_of(const Range& range) const {
    return reinterpret_cast<std::uint64_t>(actual_.data() + range.offset);
  }

  /// Offset of the first byte whose actual content differs from the expected one; size() if there is none.
  std::size_t first_difference() const;

 private:
  std::vector<std::uint8_t> actual_;
  std::vector<std::uint8_t> expected_;
  std::size_t reserved_ = 0;
};

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
  std::unique_ptr<CompletionQueue> receive_completions;  ///< null: send_completions also serves receives
  std::unique_ptr<ReceiveQueue> shared;                  ///< null: each queue pair has its own receive queue
  std::unique_ptr<MemoryRegion> local;                   ///< all memory, for requests of this side
  std::unique_ptr<MemoryRegion> remote;                  ///< all memory, for requests of the peer
  std::vector<std::unique_ptr<QueuePair>> queue_pairs;
  Receives receives;
};

}  // namespace plugfest::roce::model
