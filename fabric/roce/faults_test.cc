// Fault plans are read exactly and carried out repeatably.
#include "fabric/roce/faults.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace plugfest::roce {
namespace {

std::string error_of(const char* text) {
  try {
    parse_faults(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(FaultPlan, IsReadWithPercentagesAndNumbers) {
  const FaultPlan plan = parse_faults("drop=1%,duplicate=0.25,reorder=0.5%,corrupt=100%,seed=7");
  EXPECT_DOUBLE_EQ(plan.drop, 0.01);
  EXPECT_DOUBLE_EQ(plan.duplicate, 0.25);
  EXPECT_DOUBLE_EQ(plan.reorder, 0.005);
  EXPECT_DOUBLE_EQ(plan.corrupt, 1);
  EXPECT_EQ(plan.seed, 7u);
  EXPECT_TRUE(plan.any());
}

TEST(FaultPlan, EmptyTextMeansNone) { EXPECT_FALSE(parse_faults("").any()); }

TEST(FaultPlan, ErrorsNameTheWord) {
  EXPECT_EQ(error_of("drop=1%,lose=2%"),
            "PLUGFEST_ROCE_FAULTS: \"lose=2%\": expected drop=, duplicate=, reorder= or corrupt= with a probability as "
            "in 1% or 0.01, or seed= with a number");
  for (const char* text : {"drop", "drop=", "drop=x", "drop=101%", "drop=-1%", "seed=1.5", "drop=1%%"})
    EXPECT_NE(error_of(text).find("\"" + std::string(text) + "\""), std::string::npos) << text;
}

std::vector<int> passed(const FaultPlan& plan, int packets) {
  Faults faults(plan);
  std::vector<int> out;
  for (int i = 0; i < packets; ++i)
    faults.pass({static_cast<std::byte>(i), static_cast<std::byte>(i >> 8), std::byte{0}},
                [&](const std::vector<std::byte>& packet) {
                  out.push_back(std::to_integer<int>(packet[0]) | std::to_integer<int>(packet[1]) << 8);
                });
  return out;
}

TEST(Faults, RepeatWithTheSameSeedAndDifferWithAnother) {
  FaultPlan plan = parse_faults("drop=10%,duplicate=10%,reorder=10%,corrupt=10%,seed=3");
  const auto first = passed(plan, 1000);
  EXPECT_EQ(first, passed(plan, 1000));
  plan.seed = 4;
  EXPECT_NE(first, passed(plan, 1000));
}

TEST(Faults, DropAboutAsManyAsAsked) {
  const auto out = passed(parse_faults("drop=10%"), 10000);
  EXPECT_GT(out.size(), 8700u);
  EXPECT_LT(out.size(), 9300u);
}

TEST(Faults, ReorderedPacketsComeWithinFourLaterOnes) {
  const auto out = passed(parse_faults("reorder=20%"), 1000);
  int moved = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int distance = static_cast<int>(i) - out[i];
    EXPECT_LE(std::abs(distance), 8);
    moved += distance != 0 ? 1 : 0;
  }
  EXPECT_GT(moved, 100);
}

}  // namespace
}  // namespace plugfest::roce
