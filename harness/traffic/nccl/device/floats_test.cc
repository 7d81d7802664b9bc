#include "harness/traffic/nccl/device/floats.h"

#include <gtest/gtest.h>

#include <limits>

namespace plugfest::nccl::device {
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
