// Element types and reduction operators of NCCL, on arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace plugfest::nccl::device {

/// As ncclDataType_t numbers them.
enum class Type { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kHalf, kFloat, kDouble, kBfloat16, kE4m3, kE5m2 };
inline constexpr int kTypes = 12;

std::size_t size_of(Type type);

/// As NCCL's kernels know them: avg is a kScaledSum of floating-point numbers or a kSumThenDivide of integers.
enum class Operator { kSum, kProduct, kMinMax, kScaledSum, kSumThenDivide };

/// A reduction of one work item.
struct Reduction {
  Type type = Type::kUint8;
  Operator op = Operator::kSum;
  /// kMinMax: for integers, an exclusive-or mask after which the smaller number wins; for floating-point numbers, bit 0
  /// set for max. kScaledSum: the factor's bits. kSumThenDivide: the divisor times 2, plus 1 for signed integers.
  std::uint64_t argument = 0;
};

/// Largest number of sources of combine(): the own input, and 3 peers.
inline constexpr std::size_t kMaxSources = 4;

/// Writes to each of `targets` the reduction of `count` elements of the `sources`; of one source: a copy.
/// `scale_first`: the first source is the rank's own input, to which kScaledSum applies its factor. `finish`: the
/// result is final, so that kSumThenDivide divides. Sources and targets may be the same arrays, but not overlap
/// otherwise.
void combine(const Reduction& reduction, std::span<const std::byte* const> sources, std::span<std::byte* const> targets,
             std::size_t count, bool scale_first, bool finish);

}  // namespace plugfest::nccl::device
