#include "harness/bench/reduction_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace plugfest::bench {
namespace {

TEST(ReductionBench, LimitsTheLinksOfATopology) {
  EXPECT_EQ(limited_topology("fat-tree:4", ""), "fat-tree:4,mtu=9000,rate=200Mbit");
  EXPECT_EQ(limited_topology("fat-tree:4", "50Mbit"), "fat-tree:4,mtu=9000,rate=50Mbit");
  EXPECT_EQ(limited_topology("star:4,mtu=1500", "1Gbit"), "star:4,mtu=1500,rate=1Gbit");
  EXPECT_EQ(limited_topology("star:4,rate=1Gbit", ""), "star:4,rate=1Gbit,mtu=9000");
  EXPECT_EQ(limited_topology("triangle", ""), "triangle:mtu=9000,rate=200Mbit");
  EXPECT_EQ(limited_topology("lab.yaml", ""), "lab.yaml");
}

TEST(ReductionBench, RefusesTwoRates) {
  EXPECT_THAT(
      [] { limited_topology("lab.yaml", "1Gbit"); },
      ::testing::ThrowsMessage<std::runtime_error>("--rate 1Gbit: topology lab.yaml sets its rates: leave out --rate"));
  EXPECT_THROW(limited_topology("star:4,rate=1Gbit", "2Gbit"), std::runtime_error);
}

}  // namespace
}  // namespace plugfest::bench
