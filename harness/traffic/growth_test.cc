#include "harness/traffic/growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plugfest::traffic {
namespace {

TEST(Steps, HaveAMeanAndItsStandardError) {
  Steps steps;
  EXPECT_EQ(steps.mean(), 0);
  EXPECT_EQ(steps.error(), 0);
  for (const std::int64_t step : {2, 4, 4, 6}) steps.add(step);
  EXPECT_EQ(steps.least(), 2);
  EXPECT_EQ(steps.most(), 6);
  EXPECT_DOUBLE_EQ(steps.mean(), 4);
  // The standard deviation is the root of 8/3.
  EXPECT_NEAR(steps.error(), 0.8165, 1e-4);
}

TEST(Steps, OneStepHasNoStandardError) {
  Steps steps;
  steps.add(-7);
  EXPECT_EQ(steps.mean(), -7);
  EXPECT_EQ(steps.error(), 0);
}

}  // namespace
}  // namespace plugfest::traffic
