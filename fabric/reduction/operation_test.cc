#include "fabric/reduction/operation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace plugfest::reduction {
namespace {

// Small integers, which every type holds exactly, as do their sums and products.
int reference(Operator op, int a, int b) {
  switch (op) {
    case Operator::kMax:
      return std::max(a, b);
    case Operator::kMin:
      return std::min(a, b);
    case Operator::kSum:
      return a + b;
    case Operator::kProduct:
      return a * b;
    case Operator::kLogicalAnd:
      return a != 0 && b != 0;
    case Operator::kAnd:
      return a & b;
    case Operator::kLogicalOr:
      return a != 0 || b != 0;
    case Operator::kOr:
      return a | b;
    case Operator::kLogicalXor:
      return (a != 0) != (b != 0);
    case Operator::kXor:
      return a ^ b;
  }
  return 0;
}

// The bits of an integer from 0 to 64 as a 16-bit floating-point number: the exponent is the place of its highest bit.
std::uint16_t small_float(int value, int exponent_bias, int fraction_bits) {
  if (value == 0) return 0;
  const int exponent = std::ilogb(static_cast<double>(value));
  const int fraction = static_cast<int>((static_cast<double>(value) / std::exp2(exponent) - 1) * (1 << fraction_bits));
  return static_cast<std::uint16_t>((exponent + exponent_bias) << fraction_bits | fraction);
}

template <typename T>
void append(std::vector<std::byte>& bytes, T value) {
  bytes.resize(bytes.size() + sizeof(T));
  std::memcpy(&bytes[bytes.size() - sizeof(T)], &value, sizeof(T));
}

void append(std::vector<std::byte>& bytes, DataType type, int value) {
  switch (type) {
    case DataType::kFloat:
      return append(bytes, static_cast<float>(value));
    case DataType::kDouble:
      return append(bytes, static_cast<double>(value));
    case DataType::kHalf:
      return append(bytes, small_float(value, 15, 10));
    case DataType::kBfloat16:
      return append(bytes, small_float(value, 127, 7));
    default:
      break;
  }
  const std::size_t size = element_bytes(type);
  if (size == 1) return append(bytes, static_cast<std::uint8_t>(value));
  if (size == 2) return append(bytes, static_cast<std::uint16_t>(value));
  if (size == 4) return append(bytes, static_cast<std::uint32_t>(value));
  append(bytes, static_cast<std::uint64_t>(value));
}

TEST(Combine, EqualsAPlainComputationForEveryTypeAndOperator) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> small(0, 8);
  for (int type = 0; type < kDataTypes; ++type) {
    for (int op = 0; op < kOperators; ++op) {
      const auto data_type = static_cast<DataType>(type);
      const auto operation = static_cast<Operator>(op);
      if (!is_supported(data_type, operation)) continue;
      std::vector<std::byte> accumulator, contribution, expected;
      for (int i = 0; i < 100; ++i) {
        const int a = small(random), b = small(random);
        append(accumulator, data_type, a);
        append(contribution, data_type, b);
        append(expected, data_type, reference(operation, a, b));
      }
      // At an odd address.
      std::vector<std::byte> shifted(contribution.size() + 1);
      std::copy(contribution.begin(), contribution.end(), shifted.begin() + 1);
      combine(data_type, operation, accumulator, std::span(shifted).subspan(1));
      EXPECT_EQ(accumulator, expected) << "type " << type << ", operator " << op;
    }
  }
}

template <typename T>
T combined(DataType type, Operator op, T a, T b) {
  combine(type, op, std::as_writable_bytes(std::span(&a, 1)), std::as_bytes(std::span(&b, 1)));
  return a;
}

TEST(Combine, WrapsSumsAndProductsOfIntegers) {
  EXPECT_EQ(combined<std::uint8_t>(DataType::kUnsigned8, Operator::kSum, 200, 100), 44);
  EXPECT_EQ(combined<std::int8_t>(DataType::kSigned8, Operator::kProduct, -128, -1), -128);
  EXPECT_EQ(combined<std::uint16_t>(DataType::kUnsigned16, Operator::kProduct, 65535, 65535), 1);
  EXPECT_EQ(combined<std::int64_t>(DataType::kSigned64, Operator::kSum, std::numeric_limits<std::int64_t>::max(), 1),
            std::numeric_limits<std::int64_t>::min());
}

TEST(Combine, ComparesSignedNumbersAsSigned) {
  EXPECT_EQ(combined<std::int32_t>(DataType::kSigned32, Operator::kMax, -5, 3), 3);
  EXPECT_EQ(combined<std::uint32_t>(DataType::kUnsigned32, Operator::kMax, 0xfffffffb, 3), 0xfffffffb);
}

TEST(Combine, RoundsHalvesToNearestEven) {
  // 2048 + 1 lies between 2048 and 2050, 2050 + 1 between 2050 and 2052.
  EXPECT_EQ(combined<std::uint16_t>(DataType::kHalf, Operator::kSum, 0x6800, 0x3c00), 0x6800);
  EXPECT_EQ(combined<std::uint16_t>(DataType::kHalf, Operator::kSum, 0x6801, 0x3c00), 0x6802);
  EXPECT_EQ(combined<std::uint16_t>(DataType::kHalf, Operator::kSum, 0x7bff, 0x7bff), 0x7c00);  // infinity
  EXPECT_EQ(combined<std::uint16_t>(DataType::kHalf, Operator::kSum, 0x0001, 0x0001), 0x0002);  // subnormal
  EXPECT_EQ(combined<std::uint16_t>(DataType::kHalf, Operator::kSum, 0x03ff, 0x0001), 0x0400);
  EXPECT_EQ(combined<std::uint16_t>(DataType::kBfloat16, Operator::kSum, 0x4380, 0x3f80), 0x4380);  // 256 + 1
}

TEST(Combine, KeepsEveryHalfAndBfloat16) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto value = static_cast<std::uint16_t>(bits);
    const bool is_half_nan = (bits & 0x7fffu) > 0x7c00u, is_bfloat16_nan = (bits & 0x7fffu) > 0x7f80u;
    if (!is_half_nan) EXPECT_EQ(combined<std::uint16_t>(DataType::kHalf, Operator::kMax, value, value), value);
    if (!is_bfloat16_nan) EXPECT_EQ(combined<std::uint16_t>(DataType::kBfloat16, Operator::kMax, value, value), value);
  }
}

TEST(Combine, GivesNanForTheMaximumWithANan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(combined(DataType::kFloat, Operator::kMax, 1.0f, nan)));
  EXPECT_TRUE(std::isnan(combined(DataType::kFloat, Operator::kMin, nan, 1.0f)));
}

TEST(Combine, SupportsBitwiseOperatorsForIntegersOnly) {
  EXPECT_FALSE(is_supported(DataType::kFloat, Operator::kXor));
  EXPECT_FALSE(is_supported(DataType::kBfloat16, Operator::kAnd));
  EXPECT_TRUE(is_supported(DataType::kUnsigned8, Operator::kOr));
  EXPECT_TRUE(is_supported(DataType::kDouble, Operator::kLogicalOr));
}

}  // namespace
}  // namespace plugfest::reduction
