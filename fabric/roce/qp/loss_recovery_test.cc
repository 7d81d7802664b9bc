#include "fabric/roce/qp/loss_recovery.h"

#include <gtest/gtest.h>

namespace plugfest::roce {
namespace {

class CongestionWindowTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kMax = 1 << 20;

  CongestionWindowTest() { window_.start(4096, kMax); }

  void pass_rounds_without_loss(int rounds) {
    for (int i = 0; i < rounds; ++i) window_.on_acknowledgement(window_.bytes());
  }

  CongestionWindow window_;
};

TEST_F(CongestionWindowTest, HalvesOnTheFirstMarkAndShrinksLessIfMarksAreRare) {
  pass_rounds_without_loss(1000);
  ASSERT_EQ(window_.bytes(), kMax);
  window_.on_congestion();
  EXPECT_EQ(window_.bytes(), kMax / 2);
  pass_rounds_without_loss(100);
  const std::uint64_t before = window_.bytes();
  window_.on_congestion();
  EXPECT_GT(window_.bytes(), before * 95 / 100);
  EXPECT_LT(window_.bytes(), before);
}

TEST_F(CongestionWindowTest, ShrinksToTheMinimumAndGrowsAgain) {
  for (int i = 0; i < 100; ++i) {
    window_.on_congestion();
    pass_rounds_without_loss(1);
  }
  EXPECT_LT(window_.bytes(), 64u << 10);
  EXPECT_GE(window_.bytes(), CongestionWindow::kMinBytes);
  pass_rounds_without_loss(1000);
  EXPECT_EQ(window_.bytes(), kMax);
}

// Timeouts until a requester with `retry_count` gives up. `speed`: see RetransmissionTimer::retry().
int timeouts_until_failure(unsigned retry_count, double speed, Nanoseconds timeout = 1000) {
  RetransmissionTimer timer;
  timer.start({.timeout = timeout, .retry_count = retry_count});
  int timeouts = 1;
  while (timer.retry(1000, speed)) ++timeouts;
  return timeouts;
}

TEST(AcknowledgementTimeout, IsWithinTheStandardAndReportsALossWithinAMinuteAfterSevenRetries) {
  constexpr Nanoseconds kMillisecond = 1'000'000;
  EXPECT_EQ(acknowledgement_timeout(0), kNever);
  EXPECT_EQ(acknowledgement_timeout(14) / kMillisecond, 268);
  for (unsigned exponent = 1; exponent <= 31; ++exponent) {
    EXPECT_GE(acknowledgement_timeout(exponent), Nanoseconds{4096} << exponent);
    EXPECT_LE(acknowledgement_timeout(exponent), Nanoseconds{4 * 4096} << exponent);
  }
  constexpr unsigned kLongestDefaultOfPlugins = 20;
  EXPECT_LT(8 * acknowledgement_timeout(kLongestDefaultOfPlugins), 60'000 * kMillisecond);
}

TEST(RetransmissionTimerTest, ATimeoutWithoutAProcessorIsOnlyAPartOfARetry) {
  EXPECT_EQ(timeouts_until_failure(7, 1), 8);
  EXPECT_EQ(timeouts_until_failure(7, 0.97), 8);
  EXPECT_EQ(timeouts_until_failure(7, 0.25), 29);
  EXPECT_EQ(timeouts_until_failure(0, 0.25), 1);
}

TEST(RetransmissionTimerTest, LoadLengthensTheRetriesByAMinute) {
  constexpr Nanoseconds kSecond = 1'000'000'000;
  EXPECT_EQ(timeouts_until_failure(7, 0.25, kSecond), 29) << "21 s longer";
  EXPECT_EQ(timeouts_until_failure(7, 0.25, 20 * kSecond), 4 + 7) << "15 s of each of four timeouts do not count";
  EXPECT_EQ(timeouts_until_failure(7, 1, 100 * kSecond), 8);
}

TEST(RetransmissionTimerTest, GivesUpAtTheThirdProbeAfterARefusal) {
  RetransmissionTimer timer;
  timer.start({.timeout = 1000});
  EXPECT_FALSE(timer.note_refusal(false));
  EXPECT_FALSE(timer.note_refusal(true));
  EXPECT_FALSE(timer.note_refusal(false));
  EXPECT_TRUE(timer.note_refusal(false));
  timer.reset_retries();
  EXPECT_FALSE(timer.note_refusal(true)) << "an acknowledgement has come";
  timer.start({.timeout = kNever});
  for (int probe = 0; probe < 10; ++probe) EXPECT_FALSE(timer.note_refusal(true));
}

TEST(RetransmissionTimerTest, EndsWithTheEarliestOfItsTimers) {
  constexpr Nanoseconds kTimeout = 100'000'000, kProbe = 2'000'000;
  RetransmissionTimer timer;
  timer.start({.timeout = kTimeout});
  EXPECT_EQ(timer.deadline(), kNever);
  timer.restart(1000, true);
  EXPECT_EQ(timer.deadline(), 1000 + kProbe);
  EXPECT_FALSE(timer.probe_due(999 + kProbe));
  EXPECT_TRUE(timer.probe_due(1000 + kProbe));
  for (const int factor : {2, 4, 8}) {
    timer.back_off_probe(5000);
    EXPECT_EQ(timer.deadline(), 5000 + factor * kProbe);
  }
  timer.postpone_probe(kTimeout);
  EXPECT_EQ(timer.deadline(), 1000 + kTimeout);
  EXPECT_TRUE(timer.timed_out(1000 + kTimeout));
  timer.restart(2000, false);
  EXPECT_FALSE(timer.running());
}

TEST(LossRecoveryTest, ReactsOnceToEachEvent) {
  LossRecovery recovery;
  recovery.start(Psn(10));
  EXPECT_TRUE(recovery.begin(Psn(10), Psn(20)));
  EXPECT_FALSE(recovery.begin(Psn(19), Psn(30)));
  EXPECT_TRUE(recovery.begin(Psn(20), Psn(30)));
  EXPECT_TRUE(recovery.note_nak(Psn(25), 0));
  EXPECT_FALSE(recovery.note_nak(Psn(25), 199'999));
  EXPECT_TRUE(recovery.note_nak(Psn(25), 200'000));
  EXPECT_TRUE(recovery.note_gap(Psn(26)));
  EXPECT_FALSE(recovery.note_gap(Psn(26)));
  recovery.timed_out(Psn(40));
  EXPECT_TRUE(recovery.note_gap(Psn(26)));
  EXPECT_FALSE(recovery.begin(Psn(39), Psn(50)));
}

}  // namespace
}  // namespace plugfest::roce
