// Elements of all types, for tests.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "fabric/sharp_coll/sharp/api/sharp_coll.h"

namespace plugfest::sharp_coll::testing {

struct ElementType {
  sharp_datatype dtype;
  const char* name;
  std::size_t bytes;
  bool is_integer;
};

inline constexpr ElementType kElementTypes[] = {
    {SHARP_DTYPE_UNSIGNED, "u32", 4, true},       {SHARP_DTYPE_INT, "i32", 4, true},
    {SHARP_DTYPE_UNSIGNED_LONG, "u64", 8, true},  {SHARP_DTYPE_LONG, "i64", 8, true},
    {SHARP_DTYPE_FLOAT, "f32", 4, false},         {SHARP_DTYPE_DOUBLE, "f64", 8, false},
    {SHARP_DTYPE_UNSIGNED_SHORT, "u16", 2, true}, {SHARP_DTYPE_SHORT, "i16", 2, true},
    {SHARP_DTYPE_FLOAT_SHORT, "f16", 2, false},   {SHARP_DTYPE_BFLOAT16, "bf16", 2, false},
    {SHARP_DTYPE_UINT8, "u8", 1, true},           {SHARP_DTYPE_INT8, "i8", 1, true},
};

struct Operator {
  sharp_reduce_op op;
  const char* name;
  bool of_integers;  ///< defined for integers only
};

inline constexpr Operator kOperators[] = {
    {SHARP_OP_MAX, "max", false},   {SHARP_OP_MIN, "min", false},  {SHARP_OP_SUM, "sum", false},
    {SHARP_OP_PROD, "prod", false}, {SHARP_OP_LAND, "land", true}, {SHARP_OP_BAND, "band", true},
    {SHARP_OP_LOR, "lor", true},    {SHARP_OP_BOR, "bor", true},   {SHARP_OP_LXOR, "lxor", true},
    {SHARP_OP_BXOR, "bxor", true},
};

/// Writes a small integer as an element. All types represent it exactly: at most 256 for bf16.
inline void put(std::byte* at, const ElementType& type, int value) {
  const auto single = static_cast<float>(value);
  const auto bits = std::bit_cast<std::uint32_t>(single);
  if (type.dtype == SHARP_DTYPE_FLOAT) {
    std::memcpy(at, &single, sizeof(single));
  } else if (type.dtype == SHARP_DTYPE_DOUBLE) {
    const double wide = value;
    std::memcpy(at, &wide, sizeof(wide));
  } else if (type.dtype == SHARP_DTYPE_BFLOAT16) {
    const auto half = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(at, &half, sizeof(half));
  } else if (type.dtype == SHARP_DTYPE_FLOAT_SHORT) {
    const std::uint32_t sign = bits >> 16 & 0x8000u;
    const std::uint32_t magnitude = value == 0 ? 0 : ((bits >> 23 & 0xffu) - 127 + 15) << 10 | (bits >> 13 & 0x3ffu);
    const auto half = static_cast<std::uint16_t>(sign | magnitude);
    std::memcpy(at, &half, sizeof(half));
  } else {
    const auto wide = static_cast<std::int64_t>(value);  // little-endian: the low bytes come first
    std::memcpy(at, &wide, type.bytes);
  }
}

/// The value that put() has written.
inline int get(const std::byte* at, const ElementType& type) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, std::min<std::size_t>(type.bytes, sizeof(bits)));
  if (type.dtype == SHARP_DTYPE_DOUBLE) {
    double wide = 0;
    std::memcpy(&wide, at, sizeof(wide));
    return static_cast<int>(wide);
  }
  if (type.dtype == SHARP_DTYPE_BFLOAT16) bits <<= 16;
  if (type.dtype == SHARP_DTYPE_FLOAT_SHORT)
    bits = (bits & 0x8000u) << 16 | ((bits & 0x7fffu) == 0 ? 0 : ((bits >> 10 & 0x1fu) - 15 + 127) << 23) |
           (bits & 0x3ffu) << 13;
  if (!type.is_integer) return static_cast<int>(std::bit_cast<float>(bits));
  return static_cast<int>(bits);  // of a narrow type: not negative
}

/// Element `index` of a rank: small, so that sums and products of 16 ranks are exact in every type.
inline int element(int rank, std::size_t index, sharp_reduce_op op) {
  const auto mixed = static_cast<unsigned>(index * 7 + static_cast<std::size_t>(rank) * 3 + index / 11);
  if (op == SHARP_OP_PROD) return mixed % 5 == 0 ? 2 : 1;
  if (op == SHARP_OP_LAND || op == SHARP_OP_LOR || op == SHARP_OP_LXOR) return static_cast<int>(mixed % 3);
  return static_cast<int>(mixed % 8);
}

/// The reduction of two elements.
inline int reduce(sharp_reduce_op op, int a, int b) {
  switch (op) {
    case SHARP_OP_MAX:
      return a > b ? a : b;
    case SHARP_OP_MIN:
      return a < b ? a : b;
    case SHARP_OP_SUM:
      return a + b;
    case SHARP_OP_PROD:
      return a * b;
    case SHARP_OP_LAND:
      return static_cast<int>(a != 0 && b != 0);
    case SHARP_OP_BAND:
      return a & b;
    case SHARP_OP_LOR:
      return static_cast<int>(a != 0 || b != 0);
    case SHARP_OP_BOR:
      return a | b;
    case SHARP_OP_LXOR:
      return static_cast<int>((a != 0) != (b != 0));
    case SHARP_OP_BXOR:
      return a ^ b;
    default:
      return 0;
  }
}

/// The contribution of a rank.
inline std::vector<std::byte> elements(int rank, std::size_t count, const ElementType& type, sharp_reduce_op op) {
  std::vector<std::byte> bytes(count * type.bytes);
  for (std::size_t i = 0; i < count; ++i) put(bytes.data() + i * type.bytes, type, element(rank, i, op));
  return bytes;
}

/// The reduction over `ranks` ranks.
inline std::vector<std::byte> reduced(int ranks, std::size_t count, const ElementType& type, sharp_reduce_op op) {
  std::vector<std::byte> bytes(count * type.bytes);
  for (std::size_t i = 0; i < count; ++i) {
    int value = element(0, i, op);
    for (int rank = 1; rank < ranks; ++rank) value = reduce(op, value, element(rank, i, op));
    put(bytes.data() + i * type.bytes, type, value);
  }
  return bytes;
}

}  // namespace plugfest::sharp_coll::testing
