// When the thread of a NIC serves at once, and when it leaves packets to a program that polls.
#include "fabric/roce/engine/service_thread.h"

#include <gtest/gtest.h>

namespace plugfest::roce {
namespace {

constexpr int kMany = 1000;

Eagerness found_late_for_long() {
  Eagerness eagerness;
  for (int i = 0; i < kMany; ++i) eagerness.served(!eagerness.eager(), true);
  return eagerness;
}

TEST(Eagerness, IsNotThereAtFirst) { EXPECT_FALSE(Eagerness().eager()); }

TEST(Eagerness, ComesWhenPacketsWereLeftLyingAgainAndAgain) { EXPECT_TRUE(found_late_for_long().eager()); }

TEST(Eagerness, StaysAwayFromAProgramThatPollsAllTheTime) {
  Eagerness eagerness;
  for (int i = 0; i < kMany; ++i) eagerness.served(true, false);
  EXPECT_FALSE(eagerness.eager());
}

TEST(Eagerness, GoesWhenThereIsNothingLeftToFind) {
  Eagerness eagerness = found_late_for_long();
  for (int i = 0; i < kMany; ++i) eagerness.served(false, false);
  EXPECT_FALSE(eagerness.eager());
}

TEST(Eagerness, StaysWhenEverySecondTimeThereIsSomething) {
  Eagerness eagerness = found_late_for_long();
  for (int i = 0; i < kMany; ++i) eagerness.served(false, i % 2 == 0);
  EXPECT_TRUE(eagerness.eager());
}

}  // namespace
}  // namespace plugfest::roce
