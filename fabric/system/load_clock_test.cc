#include "fabric/system/load_clock.h"

#include <fstream>

#include "fabric/system/testing.h"

namespace plugfest {
namespace {

constexpr Nanoseconds kMs = 1'000'000;
constexpr Nanoseconds kStart = 5000 * kMs;

/// A folder like /proc with one process, 7, and its thread 8.
class LoadClockTest : public testing::Test {
 protected:
  LoadClockTest() {
    own_thread_has(0, 0);
    thread_has('S', 0, 0);
    clock_.watch(7);
    EXPECT_EQ(clock_.at(kStart), 0);
  }
  void thread_has(char state, int ran_ms, int waited_ms, int turns = 1) {
    std::filesystem::create_directories(folder_ / "7/task/8");
    write("8", state, ran_ms, waited_ms, turns);
  }
  void own_thread_has(int ran_ms, int waited_ms) { write("thread-self", 'R', ran_ms, waited_ms, 1); }
  void write(const std::string& thread, char state, int ran_ms, int waited_ms, int turns) {
    const std::filesystem::path folder = folder_ / thread;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "stat") << "8 (a) b) " << state << " 1 2 3";
    std::ofstream(folder / "schedstat") << ran_ms * kMs << ' ' << waited_ms * kMs << ' ' << turns << '\n';
  }

  ScratchFolder folder_;
  LoadClock clock_{LoadClock::Own::kThread, folder_ / ""};
};

TEST_F(LoadClockTest, IsTheMonotonicClockWhileNobodyWaits) {
  EXPECT_EQ(clock_.at(kStart + 50 * kMs), 50 * kMs);
  thread_has('R', 200, 0);
  EXPECT_EQ(clock_.at(kStart + 200 * kMs), 200 * kMs);
}

TEST_F(LoadClockTest, LeavesOutTheTimeInWhichAThreadWaited) {
  thread_has('S', 20, 75);
  EXPECT_EQ(clock_.at(kStart + 100 * kMs), 25 * kMs);
  EXPECT_EQ(clock_.at(kStart + 140 * kMs), 35 * kMs) << "at the same speed until the next reading";
  EXPECT_EQ(clock_.at(kStart + 200 * kMs), 125 * kMs) << "no thread waited any more";
}

TEST_F(LoadClockTest, LeavesOutAWaitThatHasNotEnded) {
  thread_has('R', 40, 0);
  EXPECT_EQ(clock_.at(kStart + 100 * kMs), 100 * kMs) << "the wait may have begun just now";
  thread_has('R', 70, 0);
  EXPECT_EQ(clock_.at(kStart + 200 * kMs), 130 * kMs);
}

TEST_F(LoadClockTest, CountsTheTimeOfAThreadThatOftenSleeps) {
  thread_has('R', 5, 0, 1);
  EXPECT_EQ(clock_.at(kStart + 100 * kMs), 100 * kMs);
  thread_has('R', 10, 1, 50);
  EXPECT_EQ(clock_.at(kStart + 200 * kMs), 199 * kMs) << "runnable at both readings, and it ran between them";
}

TEST_F(LoadClockTest, LeavesOutAWaitForALockOfTheKernel) {
  thread_has('D', 50, 0);
  EXPECT_EQ(clock_.at(kStart + 100 * kMs), 50 * kMs);
}

TEST_F(LoadClockTest, AddsTheWaitsOfItsOwnThread) {
  thread_has('S', 10, 30);
  own_thread_has(10, 50);
  EXPECT_EQ(clock_.at(kStart + 100 * kMs), 20 * kMs);
}

TEST_F(LoadClockTest, LeavesOutTheTimeOfAMeterAlsoIfItIsLate) {
  const auto meter = std::make_shared<LoadClock::Meter>(900 * kMs);
  clock_.watch(meter);
  EXPECT_EQ(clock_.at(kStart + 100 * kMs), 100 * kMs) << "what it showed before does not count";
  *meter += 60 * kMs;
  EXPECT_EQ(clock_.at(kStart + 200 * kMs), 140 * kMs);
  *meter += 130 * kMs;
  const Nanoseconds least = 100 * kMs / LoadClock::kSlowest;
  EXPECT_EQ(clock_.at(kStart + 300 * kMs), 140 * kMs + least);
  EXPECT_EQ(clock_.at(kStart + 400 * kMs), 210 * kMs + least);
  EXPECT_EQ(clock_.at(kStart + 500 * kMs), 310 * kMs + least);
}

TEST_F(LoadClockTest, AdvancesAtLeastAtItsSlowestSpeed) {
  thread_has('S', 0, 400);
  own_thread_has(0, 300);
  EXPECT_EQ(clock_.at(kStart + 300 * kMs), 300 * kMs / LoadClock::kSlowest);
}

TEST_F(LoadClockTest, IsTheMonotonicClockAfterTheProcessHasEnded) {
  std::filesystem::remove_all(folder_ / "7");
  EXPECT_EQ(clock_.at(kStart + 100 * kMs), 100 * kMs);
}

TEST(LoadClock, ReadsTheFilesOfThisMachine) {
  LoadClock clock(LoadClock::Own::kProcess);
  EXPECT_EQ(clock.now(), 0);
  EXPECT_GE(clock.now(), 0);
  EXPECT_GT(clock.speed(), 0);
  EXPECT_LE(clock.speed(), 1);
}

}  // namespace
}  // namespace plugfest
