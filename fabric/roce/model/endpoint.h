// One of the model test's two NICs with all that it needs, and its memory twice: as it is and as it must be.
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
#include "fabric/roce/qp/receive_queue.h"

namespace plugfest::roce::model {

using Random = std::mt19937_64;

/// A number from `least` to `most`, both included.
inline std::uint64_t draw(Random& random, std::uint64_t least, std::uint64_t most) {
  return std::uniform_int_distribution<std::uint64_t>(least, most)(random);
}
inline bool chance(Random& random, double probability) { return std::bernoulli_distribution(probability)(random); }

/// Of requests to send; receives count from 0.
constexpr std::uint64_t kFirstSendId = 1ull << 32;
constexpr std::uint32_t kQKey = 0x1ee7;

/// What a seed decides for both ends.
struct Setting {
  ibv_qp_type type = IBV_QPT_RC;
  unsigned queue_pairs = 1;
  unsigned requests = 0;  ///< by each queue pair
  ibv_mtu path_mtu = IBV_MTU_1024;
  std::uint8_t reads_in_flight = 1;
  std::uint8_t rnr_timer = 1;
  std::uint32_t psn = 0;
  std::uint32_t longest_bytes = 0;  ///< of a message
  std::size_t memory_bytes = 16 << 20;
  ibv_qp_cap capabilities = {};
};

/// Where something lies in an endpoint's memory.
struct Range {
  std::size_t offset = 0;
  std::uint32_t length = 0;

  bool overlaps(const Range& other) const {
    return offset < other.offset + other.length && other.offset < offset + length;
  }
};

class Endpoint {
 public:
  Endpoint(std::string address, const Setting& setting, const FaultPlan& faults, Random& random);

  /// A piece of memory that nothing else uses, at a drawn distance from the one before.
  Range reserve(Random& random, std::uint32_t length, std::size_t alignment = 1);
  /// Reserves `length` bytes in up to `most` pieces, some of them empty.
  std::vector<Range> reserve_pieces(Random& random, std::uint32_t length, unsigned most);

  std::span<std::uint8_t> actual(const Range& range) { return std::span(memory_).subspan(range.offset, range.length); }
  std::span<std::uint8_t> expected(const Range& range) {
    return std::span(expected_).subspan(range.offset, range.length);
  }
  std::uint64_t address_of(const Range& range) const {
    return reinterpret_cast<std::uint64_t>(memory_.data() + range.offset);
  }
  ibv_sge segment_of(const Range& range) const { return {address_of(range), range.length, local->key()}; }

  /// The first byte that is not as it must be, or the memory's size.
  std::size_t first_difference() const;
  std::size_t memory_bytes() const { return memory_.size(); }

  /// Events that a queue pair or completion queue announced and that mean a failure.
  unsigned failures() const { return failures_; }

  const std::string address;

 private:
  std::atomic<unsigned> failures_{0};  ///< written by the NIC's thread until the NIC has gone
  std::vector<std::uint8_t> memory_;
  std::vector<std::uint8_t> expected_;
  std::size_t reserved_ = 0;

 public:
  Nic nic;
  ProtectionDomain domain;
  std::unique_ptr<CompletionQueue> sent;      ///< completions of sends
  std::unique_ptr<CompletionQueue> received;  ///< of receives; null: they come to `sent` too
  std::unique_ptr<ReceiveQueue> shared;       ///< null: each queue pair has its own
  std::unique_ptr<MemoryRegion> local;        ///< all of the memory, for its own requests
  std::unique_ptr<MemoryRegion> remote;       ///< all of it, for the peer's
  std::vector<std::unique_ptr<QueuePair>> queue_pairs;
  std::vector<std::vector<Range>> receives;  ///< by wr_id: where their segments lie
  std::set<std::uint64_t> open_receives;     ///< wr_ids of those that did not complete
  bool ending = false;                       ///< queue pairs are in ERR: receives may come back unused
};

}  // namespace plugfest::roce::model
