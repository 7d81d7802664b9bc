// Floating-point formats that C++ lacks: stored bits, computed in float, rounded to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace plugfest::nccl::device {

/// A number with `kExponent` bits of exponent and `kMantissa` bits of mantissa. `kInfinity`: the largest exponent means
/// infinity and NaN, as in IEEE 754; otherwise only all ones is NaN, and numbers that are too large become the largest.
template <class Bits, int kExponent, int kMantissa, bool kInfinity, bool kSaturate>
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
  static constexpr unsigned kLargest = kInfinity ? ((kExponentMask - 1) << kMantissa | kMantissaMask)
                                                 : (kExponentMask << kMantissa | (kMantissaMask - 1));
  static constexpr unsigned kNan = kExponentMask << kMantissa | kMantissaMask;

  static float decode(Bits bits) {
    const bool negative = (bits >> (kExponent + kMantissa)) != 0;
    const int exponent = static_cast<int>((bits >> kMantissa) & kExponentMask);
    const unsigned mantissa = bits & kMantissaMask;
    float value = 0;
    if (kInfinity && exponent == static_cast<int>(kExponentMask)) {
      value = mantissa == 0 ? INFINITY : NAN;
    } else if (!kInfinity && (bits & (kExponentMask << kMantissa | kMantissaMask)) == kNan) {
      value = NAN;
    } else if (exponent == 0) {
      value = std::ldexp(static_cast<float>(mantissa), 1 - kBias - kMantissa);
    } else {
      value = std::ldexp(static_cast<float>(mantissa | (1u << kMantissa)), exponent - kBias - kMantissa);
    }
    return negative ? -value : value;
  }

  static Bits encode(float value) {
    const unsigned sign = std::signbit(value) ? 1u << (kExponent + kMantissa) : 0;
    const float magnitude = std::fabs(value);
    if (std::isnan(value)) return static_cast<Bits>(sign | kNan);
    unsigned result = 0;
    if (std::isinf(magnitude)) {
      result = kLargest + 1;
    } else if (magnitude != 0) {
      int exponent = 0;
      std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
      const int unit = std::max(exponent - 1, 1 - kBias) - kMantissa;
      // In units of the last place: exact in float, because the factor is a power of two.
      const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(magnitude, -unit)));
      const int biased = unit + kMantissa + kBias;
      // Carries into the exponent by itself when rounding reaches the next power of two.
      result = (static_cast<unsigned>(biased - 1) << kMantissa) + units;
      if (result > kLargest) result = kLargest + 1;
    }
    if (result > kLargest) result = kSaturate ? kLargest : kInfinity ? kExponentMask << kMantissa : kNan;
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
    if (std::isnan(value)) {
      bits = static_cast<std::uint16_t>(wide >> 16 | 0x40);
    } else {
      bits = static_cast<std::uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

  friend Bfloat16 operator+(Bfloat16 a, Bfloat16 b) { return Bfloat16(float(a) + float(b)); }
  friend Bfloat16 operator*(Bfloat16 a, Bfloat16 b) { return Bfloat16(float(a) * float(b)); }
  friend bool operator==(Bfloat16 a, Bfloat16 b) { return float(a) == float(b); }
};

}  // namespace plugfest::nccl::device
