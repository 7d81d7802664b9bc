#include "fabric/roce/service_thread.h"

#include <gtest/gtest.h>

namespace plugfest::roce {
namespace {

constexpr int kMany = 1000;

TakeoverPolicy after_many_late_packets() {
  TakeoverPolicy takeover;
  for (int i = 0; i < kMany; ++i) takeover.served(!takeover.immediate(), true);
  return takeover;
}

TEST(TakeoverPolicy, WaitsForTheProgramAtFirst) { EXPECT_FALSE(TakeoverPolicy().immediate()); }

TEST(TakeoverPolicy, BecomesImmediateAfterManyLatePackets) { EXPECT_TRUE(after_many_late_packets().immediate()); }

TEST(TakeoverPolicy, WaitsForAProgramThatPollsAllTheTime) {
  TakeoverPolicy takeover;
  for (int i = 0; i < kMany; ++i) takeover.served(true, false);
  EXPECT_FALSE(takeover.immediate());
}

TEST(TakeoverPolicy, WaitsAgainWhenNoPacketsAreFound) {
  TakeoverPolicy takeover = after_many_late_packets();
  for (int i = 0; i < kMany; ++i) takeover.served(false, false);
  EXPECT_FALSE(takeover.immediate());
}

TEST(TakeoverPolicy, StaysImmediateWhenEverySecondServeFindsPackets) {
  TakeoverPolicy takeover = after_many_late_packets();
  for (int i = 0; i < kMany; ++i) takeover.served(false, i % 2 == 0);
  EXPECT_TRUE(takeover.immediate());
}

}  // namespace
}  // namespace plugfest::roce
