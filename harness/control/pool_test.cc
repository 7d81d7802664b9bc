// Which ranks serve several rules, and which are replaced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "harness/control/toy_session.h"

namespace plugfest::control {
namespace {

using ::testing::MatchesRegex;

TEST(Pool, StartsANewRankAfterACrash) {
  PairWithBuffer pair("crash in isend");
  const pid_t first = pair.a.pid();
  const pid_t other = pair.b.pid();
  EXPECT_THROW(pair.ab.send.isend(pair.buffer), Crashed);
  EXPECT_EQ(message_of<Crashed>([&] { pair.a.devices(); }).find("rank a.eth0: isend"), 0u)
      << "later calls report the first failure";
  pair.lease.release(false);
  EXPECT_FALSE(exists(first));
  EXPECT_FALSE(exists(other));
  Lease next = pair.toy.session.lease();
  EXPECT_EQ(next.rank("a.eth0").devices(), 1);
}

TEST(Pool, StartsNewRanksInThePlaceOfAllThatHaveMetADeadOne) {
  ToySession toy;
  const auto processes = [&](auto action) {
    Lease lease = toy.session.lease();
    Rank a = lease.rank("a.eth0"), b = lease.rank("b.eth0");
    const std::pair<pid_t, pid_t> pids{a.pid(), b.pid()};
    action(b);
    lease.release(true);
    return pids;
  };
  const auto first = processes([](Rank&) {}), second = processes([](Rank&b) { b.kill(); });
  EXPECT_EQ(second, first);
  const auto third = processes([](Rank&) {});
  EXPECT_NE(third.first, first.first);
  EXPECT_NE(third.second, first.second);
  EXPECT_EQ(processes([](Rank&) {}), third);
}

TEST(Pool, StartsANewRankInThePlaceOfOneThatHasMetANewProcess) {
  ToySession toy;
  const auto process = [&](bool meets) {
    Lease lease = toy.session.lease();
    Rank a = lease.rank("a.eth0");
    const pid_t pid = a.pid();
    if (meets) {
      Lease others = lease.with_new_ranks();
      connect({a, Device{0}}, {others.rank("b.eth0"), Device{0}});
    }
    lease.release(true);
    return pid;
  };
  const pid_t first = process(false);
  EXPECT_EQ(process(true), first);
  EXPECT_NE(process(false), first);
}

TEST(Pool, TriesAPluginThatCannotBeInitializedOnce) {
  ToySession toy("init fails");
  EXPECT_THROW(toy.session.lease().rank("a.eth0", {.state = RankState::kReady}), CallFailed);
  EXPECT_EQ(message_of<Unusable>([&] { toy.session.lease().rank("b.eth0"); }),
            "the plugin cannot be used: rank a.eth0: init() returned ncclSystemError (2)");
  EXPECT_NO_THROW(toy.session.lease().rank("b.eth0", {.state = RankState::kLoaded}));
}

TEST(Pool, TriesAPluginAgainThatCouldBeInitializedOnce) {
  ToySession toy("");
  toy.session.lease().rank("a.eth0");
  const RankOptions options = {.fresh = true, .environment = {{"TOY_FAULT", "init fails"}}};
  EXPECT_THROW(toy.session.lease().rank("a.eth0", options), CallFailed);
  EXPECT_THROW(toy.session.lease().rank("b.eth0", options), CallFailed);
  EXPECT_NO_THROW(toy.session.lease().rank("b.eth0"));
}

TEST(Pool, KeepsCleanRanksOnly) {
  ToySession toy;
  pid_t pid = 0;
  {
    Lease lease = toy.session.lease();
    Rank a = lease.rank("a.eth0");
    pid = a.pid();
    a.listen(Device{0});
    EXPECT_THAT(lease.release(true), ::testing::IsEmpty());
  }
  {
    Lease lease = toy.session.lease();
    Rank a = lease.rank("a.eth0");
    EXPECT_EQ(a.pid(), pid);
    a.try_properties(Device{7});  // after an error the rank cannot serve other rules
    lease.release(true);
  }
  Lease lease = toy.session.lease();
  EXPECT_NE(lease.rank("a.eth0").pid(), pid);
}

TEST(Pool, ReleaseReturnsErrorsOfClose) {
  ToySession toy("close fails");
  Lease lease = toy.session.lease();
  lease.rank("a.eth0").listen(Device{0});
  EXPECT_THAT(lease.release(true),
              ::testing::ElementsAre(
                  MatchesRegex("rank a.eth0: closeListen\\(0x[0-9a-f]+\\) returned ncclInternalError \\(3\\)")));
}

TEST(Pool, ReleaseClosesOnAllRanksAtTheSameTime) {
  Pair pair("close waits for the peer", short_timeout());
  EXPECT_THAT(pair.lease.release(true), ::testing::IsEmpty());
}

TEST(Pool, RuleWaitsForARankInUse) {
  ToySession toy;
  Lease first = toy.session.lease();
  const pid_t pid = first.rank("a.eth0").pid();
  std::thread other([&] {
    Lease second = toy.session.lease();
    EXPECT_EQ(second.rank("a.eth0").pid(), pid) << "waits until the first rule has released it";
    second.release(true);
  });
  first.release(true);
  other.join();
}

}  // namespace
}  // namespace plugfest::control
