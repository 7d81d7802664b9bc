// Reductions of the elements of two packets: what an aggregation node computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace plugfest::reduction {

/// Types of elements, as SHARP numbers them (sharp_datatype of its 3.x interface).
enum class DataType : std::uint8_t {
  kUnsigned32,
  kSigned32,
  kUnsigned64,
  kSigned64,
  kFloat,
  kDouble,
  kUnsigned16,
  kSigned16,
  kHalf,
  kBfloat16,
  kUnsigned8,
  kSigned8
};
inline constexpr int kDataTypes = 12;

/// Operators, as SHARP numbers them (sharp_reduce_op).
enum class Operator : std::uint8_t {
  kMax,
  kMin,
  kSum,
  kProduct,
  kLogicalAnd,
  kAnd,
  kLogicalOr,
  kOr,
  kLogicalXor,
  kXor
};
inline constexpr int kOperators = 10;

/// Bytes of an element: 1, 2, 4 or 8.
std::size_t element_bytes(DataType type);
bool is_floating_point(DataType type);

/// Bitwise operators need integers; everything else is supported.
bool is_supported(DataType type, Operator op);

/// Whether the bits of the result depend on the order in which contributions are combined. They do for
/// floating-point numbers, including a maximum, which may be +0 or -0, or one of several NaNs.
bool depends_on_order(DataType type, Operator op);

/// accumulator[i] = accumulator[i] op contribution[i] for each element. Both have the same size, a multiple of
/// element_bytes(), and any alignment. Precondition: is_supported().
///
/// Sums and products of integers wrap. 16-bit floating-point numbers are combined as 32-bit ones and rounded to nearest
/// even, so each hop of a tree rounds. kMax and kMin return the contribution if it is a NaN, and keep an accumulator
/// that is one. Logical operators give 0 or 1.
void combine(DataType type, Operator op, std::span<std::byte> accumulator, std::span<const std::byte> contribution);

}  // namespace plugfest::reduction
