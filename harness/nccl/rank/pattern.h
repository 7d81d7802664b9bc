// Data of the operations: what each rank sends, and what it must receive.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/nccl/device/reduce.h"

namespace plugfest::nccl {

/// Numbers of ncclRedOp_t.
enum class RedOp { kSum, kProduct, kMax, kMin, kAverage };

/// Content of the buffers of one operation. Element `index` of rank `rank` depends on all of them, and so does the
/// result; small floating-point numbers, so that sums of 16 ranks are exact.
class Pattern {
 public:
  Pattern(std::uint64_t seed, device::Type type, RedOp op, int ranks)
      : seed_(seed), type_(type), op_(op), ranks_(ranks) {}

  /// Writes the elements from `first` on of rank `rank`.
  void fill(void* buffer, int rank, std::size_t first, std::size_t count) const;
  /// Returns how many elements differ from those of fill().
  std::size_t count_wrong(const void* buffer, int rank, std::size_t first, std::size_t count) const;
  /// Returns how many elements differ from the reduction of all ranks' elements. Averages of floating-point numbers may
  /// differ in the last places.
  std::size_t count_wrong_sum(const void* buffer, std::size_t first, std::size_t count) const;

 private:
  std::uint64_t seed_;
  device::Type type_;
  RedOp op_;
  int ranks_;
};

}  // namespace plugfest::nccl
