#include "fabric/reduction/operation.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace plugfest::reduction {
namespace {

float from_half(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16, magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;  // subnormal
  return sign != 0 ? -value : value;
}

std::uint16_t to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  // The addition of 0.5 aligns the bits of a subnormal result to units of 2^-24, and rounds to nearest even.
  if (magnitude < 0x38800000u)
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                                             0x3f000000u);
  const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return sign | static_cast<std::uint16_t>((rounded - (112u << 23)) >> 13);
}

float from_bfloat16(std::uint16_t value) { return std::bit_cast<float>(std::uint32_t{value} << 16); }

std::uint16_t to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// How an element is stored, and the number with which operators compute.
template <typename T>
struct Plain {
  using Stored = T;
  static T load(T stored) { return stored; }
  static T store(T value) { return value; }
};
struct Half {
  using Stored = std::uint16_t;
  static float load(Stored stored) { return from_half(stored); }
  static Stored store(float value) { return to_half(value); }
};
struct Bfloat16 {
  using Stored = std::uint16_t;
  static float load(Stored stored) { return from_bfloat16(stored); }
  static Stored store(float value) { return to_bfloat16(value); }
};

template <typename Element, typename Function>
void for_each(std::span<std::byte> accumulator, std::span<const std::byte> contribution, Function function) {
  using Stored = typename Element::Stored;
  for (std::size_t at = 0; at + sizeof(Stored) <= accumulator.size(); at += sizeof(Stored)) {
    Stored a, b;
    std::memcpy(&a, accumulator.data() + at, sizeof(a));
    std::memcpy(&b, contribution.data() + at, sizeof(b));
    a = Element::store(function(Element::load(a), Element::load(b)));
    std::memcpy(accumulator.data() + at, &a, sizeof(a));
  }
}

// Unsigned arithmetic of at least 32 bits wraps, including for types that C++ promotes to int.
template <typename T, typename Function>
T wrapping(T a, T b, Function function) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(function(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  else
    return function(a, b);
}

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return value != value;
  return false;
}

template <typename Element>
void combine_as(Operator op, std::span<std::byte> accumulator, std::span<const std::byte> contribution) {
  using T = decltype(Element::load({}));
  const auto each = [&](auto function) { for_each<Element>(accumulator, contribution, function); };
  switch (op) {
    case Operator::kMax:
      return each([](T a, T b) { return b > a || is_nan(b) ? b : a; });
    case Operator::kMin:
      return each([](T a, T b) { return b < a || is_nan(b) ? b : a; });
    case Operator::kSum:
      return each([](T a, T b) { return wrapping(a, b, [](auto x, auto y) { return x + y; }); });
    case Operator::kProduct:
      return each([](T a, T b) { return wrapping(a, b, [](auto x, auto y) { return x * y; }); });
    case Operator::kLogicalAnd:
      return each([](T a, T b) { return static_cast<T>(a != T{0} && b != T{0}); });
    case Operator::kLogicalOr:
      return each([](T a, T b) { return static_cast<T>(a != T{0} || b != T{0}); });
    case Operator::kLogicalXor:
      return each([](T a, T b) { return static_cast<T>((a != T{0}) != (b != T{0})); });
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == Operator::kAnd) return each([](T a, T b) { return static_cast<T>(a & b); });
    if (op == Operator::kOr) return each([](T a, T b) { return static_cast<T>(a | b); });
    return each([](T a, T b) { return static_cast<T>(a ^ b); });
  }
}

}  // namespace

std::size_t element_bytes(DataType type) {
  constexpr std::uint8_t kBytes[kDataTypes] = {4, 4, 8, 8, 4, 8, 2, 2, 2, 2, 1, 1};
  return kBytes[static_cast<std::size_t>(type)];
}

bool is_floating_point(DataType type) {
  return type == DataType::kFloat || type == DataType::kDouble || type == DataType::kHalf ||
         type == DataType::kBfloat16;
}

bool is_supported(DataType type, Operator op) {
  const bool is_bitwise = op == Operator::kAnd || op == Operator::kOr || op == Operator::kXor;
  return !is_bitwise || !is_floating_point(type);
}

bool depends_on_order(DataType type, Operator op) {
  return is_floating_point(type) &&
         (op == Operator::kMax || op == Operator::kMin || op == Operator::kSum || op == Operator::kProduct);
}

void combine(DataType type, Operator op, std::span<std::byte> accumulator, std::span<const std::byte> contribution) {
  switch (type) {
    case DataType::kUnsigned32:
      return combine_as<Plain<std::uint32_t>>(op, accumulator, contribution);
    case DataType::kSigned32:
      return combine_as<Plain<std::int32_t>>(op, accumulator, contribution);
    case DataType::kUnsigned64:
      return combine_as<Plain<std::uint64_t>>(op, accumulator, contribution);
    case DataType::kSigned64:
      return combine_as<Plain<std::int64_t>>(op, accumulator, contribution);
    case DataType::kFloat:
      return combine_as<Plain<float>>(op, accumulator, contribution);
    case DataType::kDouble:
      return combine_as<Plain<double>>(op, accumulator, contribution);
    case DataType::kUnsigned16:
      return combine_as<Plain<std::uint16_t>>(op, accumulator, contribution);
    case DataType::kSigned16:
      return combine_as<Plain<std::int16_t>>(op, accumulator, contribution);
    case DataType::kHalf:
      return combine_as<Half>(op, accumulator, contribution);
    case DataType::kBfloat16:
      return combine_as<Bfloat16>(op, accumulator, contribution);
    case DataType::kUnsigned8:
      return combine_as<Plain<std::uint8_t>>(op, accumulator, contribution);
    case DataType::kSigned8:
      return combine_as<Plain<std::int8_t>>(op, accumulator, contribution);
  }
}

}  // namespace plugfest::reduction
