// Data of the operations: the content that each rank sends, and the content that it must receive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "harness/nccl/device/types.h"

namespace plugfest::nccl {

/// Numbers of ncclRedOp_t.
enum class RedOp { kSum, kProduct, kMax, kMin, kAverage };

/// The differences between a buffer and its expected content.
struct Differences {
  std::size_t count = 0;  ///< wrong elements
  std::string first;      ///< "element 17 is 3, not 4"; empty if none is wrong
};

/// Content of the buffers of one operation. Element `index` of rank `rank` depends on all of them, and so does the
/// result; small floating-point numbers, so that sums of 16 ranks are exact.
class Pattern {
 public:
  Pattern(std::uint64_t seed, device::Type type, RedOp op, int ranks)
      : seed_(seed), type_(type), op_(op), ranks_(ranks) {}

  /// Writes the elements from `first` on of rank `rank`.
  void fill(void* buffer, int rank, std::size_t first, std::size_t count) const;
  /// Compares elements with what fill() writes. `buffer` begins with element `first`; the result numbers it 0.
  Differences compare(const void* buffer, int rank, std::size_t first, std::size_t count) const;
  /// Compares elements with the reduction of all ranks' elements. Averages of floating-point numbers may differ in the
  /// last places.
  Differences compare_sum(const void* buffer, std::size_t first, std::size_t count) const;

 private:
  std::uint64_t seed_;
  device::Type type_;
  RedOp op_;
  int ranks_;
};

}  // namespace plugfest::nccl
