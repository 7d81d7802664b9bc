// NCCL's element types, among them floating-point formats that C++ lacks, and reductions of arrays.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace plugfest::nccl::device {

/// A number that is stored as bits and computed in float, rounded to the nearest even one. It has `kExponent` bits of
/// exponent and `kMantissa` bits of mantissa. `kInfinity`: the largest exponent means infinity and NaN, as in IEEE 754;
/// otherwise only all ones is NaN, and numbers that are too large become the largest.
template <typename Bits, int kExponent, int kMantissa, bool kInfinity, bool kSaturate>
struct SmallFloat {
  Bits bits = 0;

  SmallFloat() = default;
  explicit SmallFloat(float value) : bits(encode(value)) {}
  explicit operator float() const { return decode(bits); }

  friend SmallFloat operator+(SmallFloat a, SmallFloat b) { return SmallFloat(float(a) + float(b)); }
  friend SmallFloat operator*(SmallFloat a, SmallFloat b) { return SmallFloat(float(a) * float(b)); }
  friend bool operator==(SmallFloat a, SmallFloat b) { return float(a) == float(b); }

 private:
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr unsigned kMantissaMask = (1u << kMantissa) - 1;
  static constexpr unsigned kExponentMask = (1u << kExponent) - 1;
  /// Bits of the largest finite magnitude.
  static constexpr unsigned kMax = kInfinity ? ((kExponentMask - 1) << kMantissa | kMantissaMask)
                                             : (kExponentMask << kMantissa | (kMantissaMask - 1));
  static constexpr unsigned kNan = kExponentMask << kMantissa | kMantissaMask;

  static float decode(Bits bits) {
    const bool negative = (bits >> (kExponent + kMantissa)) != 0;
    const int exponent = static_cast<int>((bits >> kMantissa) & kExponentMask);
    const unsigned mantissa = bits & kMantissaMask;
    float value = 0;
    if (kInfinity && exponent == static_cast<int>(kExponentMask))
      value = mantissa == 0 ? INFINITY : NAN;
    else if (!kInfinity && (bits & (kExponentMask << kMantissa | kMantissaMask)) == kNan)
      value = NAN;
    else if (exponent == 0)
      value = std::ldexp(static_cast<float>(mantissa), 1 - kBias - kMantissa);
    else
      value = std::ldexp(static_cast<float>(mantissa | (1u << kMantissa)), exponent - kBias - kMantissa);
    return negative ? -value : value;
  }

  static Bits encode(float value) {
    const unsigned sign = std::signbit(value) ? 1u << (kExponent + kMantissa) : 0;
    const float magnitude = std::fabs(value);
    if (std::isnan(value)) return static_cast<Bits>(sign | kNan);
    unsigned result = 0;
    if (std::isinf(magnitude)) {
      result = kMax + 1;
    } else if (magnitude != 0) {
      int exponent = 0;
      std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
      const int unit = std::max(exponent - 1, 1 - kBias) - kMantissa;
      // In units of the last place: exact in float, because the factor is a power of two.
      const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, -unit)));
      const int biased = unit + kMantissa + kBias;
      // Carries into the exponent by itself when rounding reaches the next power of two.
      result = (static_cast<unsigned>(biased - 1) << kMantissa) + units;
      if (result > kMax) result = kMax + 1;
    }
    if (result > kMax) result = kSaturate ? kMax : kInfinity ? kExponentMask << kMantissa : kNan;
    return static_cast<Bits>(sign | result);
  }
};

using Half = SmallFloat<std::uint16_t, 5, 10, true, false>;
using E4m3 = SmallFloat<std::uint8_t, 4, 3, false, true>;
using E5m2 = SmallFloat<std::uint8_t, 5, 2, true, true>;

struct Bfloat16 {
  std::uint16_t bits = 0;

  Bfloat16() = default;
  explicit Bfloat16(float value) {
    const auto wide = std::bit_cast<std::uint32_t>(value);
    if (std::isnan(value))
      bits = static_cast<std::uint16_t>(wide >> 16 | 0x40);
    else
      bits = static_cast<std::uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  friend Bfloat16 operator+(Bfloat16 a, Bfloat16 b) { return Bfloat16(float(a) + float(b)); }
  friend Bfloat16 operator*(Bfloat16 a, Bfloat16 b) { return Bfloat16(float(a) * float(b)); }
  friend bool operator==(Bfloat16 a, Bfloat16 b) { return float(a) == float(b); }
};

// Element types and reduction operators of NCCL, on arrays.

/// The numbers are as in ncclDataType_t.
enum class Type { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kHalf, kFloat, kDouble, kBfloat16, kE4m3, kE5m2 };
inline constexpr int kTypes = 12;

std::size_t size_of(Type type);

/// The operators of NCCL's kernels: avg is a kScaledSum of floating-point numbers or a kSumThenDivide of integers.
enum class Operator { kSum, kProduct, kMinMax, kScaledSum, kSumThenDivide };

/// A reduction of one work item.
struct Reduction {
  Type type = Type::kUint8;
  Operator op = Operator::kSum;
  /// kMinMax: for integers, an exclusive-or mask after which the smaller number wins; for floating-point numbers, bit 0
  /// set for max. kScaledSum: the factor's bits. kSumThenDivide: the divisor times 2, plus 1 for signed integers.
  std::uint64_t argument = 0;
};

/// Largest number of sources of combine(): this rank's input, and 3 peers.
inline constexpr std::size_t kMaxSources = 4;

/// Writes to each of `targets` the reduction of `count` elements of the `sources`; of one source: a copy.
/// `scale_first`: the first source is the rank's own input, to which kScaledSum applies its factor. `finish`: the
/// result is final, so that kSumThenDivide divides. Sources and targets may be the same arrays, but not overlap
/// otherwise.
void combine(const Reduction& reduction, std::span<const std::byte* const> sources, std::span<std::byte* const> targets,
             std::size_t count, bool scale_first, bool finish);

// From NCCL's data types to types of C++.

/// Calls `visit` with a value of the type.
template <typename Visit>
void with_type(Type type, const Visit& visit) {
  const auto visit_if = [&](Type candidate, auto value) {
    if (candidate == type) visit(value);
  };
  visit_if(Type::kInt8, std::int8_t{});
  visit_if(Type::kUint8, std::uint8_t{});
  visit_if(Type::kInt32, std::int32_t{});
  visit_if(Type::kUint32, std::uint32_t{});
  visit_if(Type::kInt64, std::int64_t{});
  visit_if(Type::kUint64, std::uint64_t{});
  visit_if(Type::kHalf, Half{});
  visit_if(Type::kFloat, float{});
  visit_if(Type::kDouble, double{});
  visit_if(Type::kBfloat16, Bfloat16{});
  visit_if(Type::kE4m3, E4m3{});
  visit_if(Type::kE5m2, E5m2{});
}

}  // namespace plugfest::nccl::device
