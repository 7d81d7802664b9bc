// The collectives of `plugfest coll`: their plans, their data, and their expected results.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "harness/traffic/replay.h"
#include "harness/traffic/table.h"

namespace plugfest::traffic {

struct CollectiveKind {
  /// "allreduce".
  std::string_view name;
  /// "sum", or "none".
  std::string_view operation;
  /// Whether the size is the sum over all ranks, so that it is a multiple of their number.
  bool size_is_total;
  /// Whether messages go between pairs of ranks, without a ring.
  bool pairs;
};

/// allreduce, allgather, reducescatter, broadcast, alltoall, sendrecv.
const std::vector<CollectiveKind>& collectives();

enum class Algorithm { kRing, kTree };

/// One collective on one team, for several sizes. The GPUs compute the result, and every element of it is checked.
class Collective {
 public:
  /// Connects, allocates and fills memory for sizes up to `max_bytes`. `algorithm`: kTree for allreduce only.
  /// Errors: as Setup; Unsuitable.
  Collective(const Team& team, const CollectiveKind& kind, Algorithm algorithm, std::uint64_t max_bytes,
             std::uint64_t seed);

  /// The size that is used for `bytes`: whole elements on each rank.
  std::uint64_t rounded(std::uint64_t bytes) const;
  /// Elements of nccl-tests' column "count".
  std::uint64_t count(std::uint64_t bytes) const;
  /// Runs one operation that is not measured and `operations` that are. `bytes`: a result of rounded(). Returns the
  /// wrong elements of all ranks, in the last operation and in the one that was not measured. Errors: as run().
  Timing measure(std::uint64_t bytes, ProxyProtocol protocol, std::size_t operations, const std::atomic<bool>* stop);

 private:
  /// Elements of the result of a rank that come from consecutive elements of the inputs.
  struct Part {
    std::uint64_t target = 0;
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    float factor = 0;
  };
  void add_operation(std::uint64_t bytes, ProxyProtocol protocol);
  std::vector<Part> expected(std::size_t rank, std::uint64_t bytes) const;
  std::uint64_t wrong_elements(std::uint64_t bytes);

  const Team& team_;
  const CollectiveKind& kind_;
  Algorithm algorithm_;
  std::uint64_t seed_;
  Plan plan_;
  std::optional<Setup> setup_;
  std::vector<control::Memory> input_, output_;
};

}  // namespace plugfest::traffic
