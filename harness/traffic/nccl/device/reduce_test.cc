#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "harness/traffic/nccl/device/types.h"

namespace plugfest::nccl::device {

namespace {

/// combine() of two numbers, the first of which is the rank's own.
template <class T>
T combined(const Reduction& reduction, T own, T other) {
  T result{};
  const std::array sources = {reinterpret_cast<const std::byte*>(&own), reinterpret_cast<const std::byte*>(&other)};
  std::byte* const target = reinterpret_cast<std::byte*>(&result);
  combine(reduction, sources, {&target, 1}, 1, true, true);
  return result;
}

std::uint64_t bits_of(float value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

TEST(Reduce, ComparesSignedIntegersByTheMask) {
  // The sign bit makes the order of signed numbers that of unsigned ones; all other bits turn min into max.
  EXPECT_EQ(combined<std::int32_t>({Type::kInt32, Operator::kMinMax, 0x80000000}, -5, 3), -5);
  EXPECT_EQ(combined<std::int32_t>({Type::kInt32, Operator::kMinMax, 0x7fffffff}, -5, 3), 3);
  EXPECT_EQ(combined<std::uint8_t>({Type::kUint8, Operator::kMinMax, 0}, 200, 3), 3);
  EXPECT_EQ(combined<std::uint8_t>({Type::kUint8, Operator::kMinMax, 0xff}, 200, 3), 200);
}

TEST(Reduce, ComparesFloatsByBitZero) {
  EXPECT_EQ(combined<float>({Type::kFloat, Operator::kMinMax, 0}, -1.5f, 2.0f), -1.5f);
  EXPECT_EQ(combined<float>({Type::kFloat, Operator::kMinMax, 0xffffffff}, -1.5f, 2.0f), 2.0f);
}

TEST(Reduce, DividesTheSumOfSignedAndUnsignedIntegers) {
  EXPECT_EQ(combined<std::int8_t>({Type::kInt8, Operator::kSumThenDivide, 2 << 1 | 1}, -7, -2), -4);
  EXPECT_EQ(combined<std::uint8_t>({Type::kUint8, Operator::kSumThenDivide, 2 << 1}, 200, 50), 125);
}

TEST(Reduce, ScalesTheOwnInputOnly) {
  EXPECT_EQ(combined<float>({Type::kFloat, Operator::kScaledSum, bits_of(0.5f)}, 8.0f, 3.0f), 7.0f);
}

TEST(Reduce, WrapsIntegersAround) {
  EXPECT_EQ(combined<std::uint8_t>({Type::kUint8, Operator::kSum, 0}, 250, 10), 4);
  EXPECT_EQ(combined<std::uint8_t>({Type::kUint8, Operator::kProduct, 0}, 20, 20), 144);
}

TEST(Reduce, WritesAllElementsToAllTargets) {
  // More elements than one block.
  constexpr std::size_t kCount = 5000;
  std::vector<double> own(kCount, 1), other(kCount, 2), first(kCount), second(kCount);
  const std::array sources = {reinterpret_cast<const std::byte*>(own.data()),
                              reinterpret_cast<const std::byte*>(other.data())};
  const std::array targets = {reinterpret_cast<std::byte*>(first.data()), reinterpret_cast<std::byte*>(second.data())};
  combine({Type::kDouble, Operator::kSum, 0}, sources, targets, kCount, true, true);
  EXPECT_EQ(first, std::vector<double>(kCount, 3));
  EXPECT_EQ(second, first);
}

}  // namespace

namespace {

TEST(Floats, HalfHasTheBitsOfIeee754) {
  EXPECT_EQ(Half(1.0f).bits, 0x3c00);
  EXPECT_EQ(Half(-2.0f).bits, 0xc000);
  EXPECT_EQ(Half(65504.0f).bits, 0x7bff);
  EXPECT_EQ(Half(65520.0f).bits, 0x7c00) << "rounds to infinity";
  EXPECT_EQ(Half(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(Half(0x1p-25f).bits, 0x0000) << "a tie goes to the even neighbour";
  EXPECT_EQ(Half(0x1.8p-24f).bits, 0x0002) << "a tie goes to the even neighbour";
  EXPECT_EQ(Half(0x1.ff8p-15f).bits, 0x03ff) << "largest subnormal number";
  EXPECT_TRUE(std::isnan(float(Half(NAN))));
}

TEST(Floats, EveryFiniteNumberSurvivesARoundTrip) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    if (!std::isnan(float(half))) {
      EXPECT_EQ(Half(float(half)).bits, bits);
    }
    Bfloat16 brain;
    brain.bits = static_cast<std::uint16_t>(bits);
    if (!std::isnan(float(brain))) {
      EXPECT_EQ(Bfloat16(float(brain)).bits, bits);
    }
  }
  for (unsigned bits = 0; bits < 0x100; ++bits) {
    E4m3 narrow;
    narrow.bits = static_cast<std::uint8_t>(bits);
    if (!std::isnan(float(narrow))) {
      EXPECT_EQ(E4m3(float(narrow)).bits, bits);
    }
    E5m2 wide;
    wide.bits = static_cast<std::uint8_t>(bits);
    if (std::isfinite(float(wide))) {
      EXPECT_EQ(E5m2(float(wide)).bits, bits);
    }
  }
}

TEST(Floats, EightBitFormatsSaturate) {
  EXPECT_EQ(float(E4m3(448.0f)), 448.0f);
  EXPECT_EQ(float(E4m3(1e6f)), 448.0f);
  EXPECT_EQ(float(E4m3(-INFINITY)), -448.0f);
  EXPECT_EQ(E4m3(448.0f).bits, 0x7e);
  EXPECT_EQ(float(E5m2(1e9f)), 57344.0f);
  EXPECT_EQ(E5m2(57344.0f).bits, 0x7b);
}

TEST(Floats, SumsAreRoundedToNearestEven) {
  EXPECT_EQ(float(Half(2048.0f) + Half(1.0f)), 2048.0f);
  EXPECT_EQ(float(Half(2048.0f) + Half(3.0f)), 2052.0f);
  EXPECT_EQ(float(Bfloat16(256.0f) + Bfloat16(1.0f)), 256.0f);
  EXPECT_EQ(float(Bfloat16(256.0f) + Bfloat16(3.0f)), 260.0f);
}

}  // namespace

}  // namespace plugfest::nccl::device
