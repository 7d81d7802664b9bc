#include "harness/rank/consumption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plugfest::rank {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Call = UnconsumedReceives::Call;

constexpr std::uint64_t kComm = 7;

TEST(UnconsumedReceives, AreConsumedInTheOrderOfPostingWhenTheStepsAreUsed) {
  UnconsumedReceives receives;
  for (std::uint64_t request = 1; request <= 8; ++request) {
    EXPECT_THAT(receives.before_receive(kComm, 1), IsEmpty());
    receives.posted(kComm, 1, request);
  }
  receives.completed(2);
  EXPECT_THAT(receives.before_receive(kComm, 1), IsEmpty()) << "the first one is not done";
  receives.completed(1);
  EXPECT_THAT(receives.before_receive(kComm, 1), ElementsAre(Call{kComm, 1, 1}));
  receives.posted(kComm, 1, 9);
  EXPECT_THAT(receives.before_receive(kComm, 1), ElementsAre(Call{kComm, 1, 2}));
}

TEST(UnconsumedReceives, HaveTheCountOfTheNewestAndFewerStepsInGroups) {
  UnconsumedReceives receives;
  receives.posted(kComm, 1, 1);
  receives.posted(kComm, 8, 2);
  receives.completed(1);
  receives.completed(2);
  EXPECT_THAT(receives.before_receive(kComm, 8), ElementsAre(Call{kComm, 8, 1}));
  EXPECT_THAT(receives.before_receive(kComm, 64), ElementsAre(Call{kComm, 8, 2}));
}

TEST(UnconsumedReceives, MayHaveTheRequestOfANewerReceive) {
  UnconsumedReceives receives;
  for (int i = 0; i < 8; ++i) {
    receives.posted(kComm, 1, 1);
    receives.completed(1);
  }
  receives.completed(1);  // a send with the same request
  EXPECT_THAT(receives.before_receive(kComm, 1), ElementsAre(Call{kComm, 1, 1}));
  receives.posted(kComm, 1, 1);
  EXPECT_EQ(receives.leave_to_caller(kComm).size(), 7u) << "one is in flight";
}

TEST(UnconsumedReceives, OlderThanOneThatTheCallerConsumesAreConsumedBefore) {
  UnconsumedReceives receives;
  for (std::uint64_t request = 1; request <= 3; ++request) {
    receives.posted(kComm, 1, request);
    receives.completed(request);
  }
  EXPECT_THAT(receives.before_consumed(kComm, 2), ElementsAre(Call{kComm, 1, 1}));
  EXPECT_THAT(receives.before_consumed(kComm, 2), IsEmpty());
  EXPECT_THAT(receives.before_consumed(kComm, 3), IsEmpty());
}

TEST(UnconsumedReceives, AreForgottenWhenTheCommIsClosedOrLeftToTheCaller) {
  UnconsumedReceives receives;
  receives.posted(kComm, 1, 1);
  receives.closed(kComm);
  receives.completed(1);
  EXPECT_THAT(receives.leave_to_caller(kComm), IsEmpty());
  receives.posted(kComm, 1, 2);
  receives.completed(2);
  EXPECT_THAT(receives.before_receive(kComm, 64), IsEmpty());
}

}  // namespace
}  // namespace plugfest::rank
