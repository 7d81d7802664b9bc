#include "harness/traffic/nccl/device/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "harness/traffic/nccl/device/floats.h"

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
}  // namespace plugfest::nccl::device
