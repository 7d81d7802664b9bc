#include "fabric/roce/service_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>

#include "fabric/roce/port/wakeup.h"
#include "fabric/system/testing.h"

namespace plugfest::roce {
namespace {

constexpr Nanoseconds kMillisecond = 1'000'000;

// The policy after packets were found late, `count` times, once in an `interval`.
TakeoverPolicy after_late_packets(int count, Nanoseconds interval) {
  TakeoverPolicy takeover;
  for (int i = 1; i <= count; ++i) takeover.served(true, true, i * interval);
  return takeover;
}

TakeoverPolicy immediate_takeover() { return after_late_packets(4, kMillisecond); }

TEST(TakeoverPolicy, WaitsForTheProgramAtFirst) { EXPECT_FALSE(TakeoverPolicy().immediate()); }

TEST(TakeoverPolicy, BecomesImmediateAfterSeveralLatePackets) { EXPECT_TRUE(immediate_takeover().immediate()); }

TEST(TakeoverPolicy, WaitsForAProgramThatPollsAllTheTime) {
  TakeoverPolicy takeover;
  for (int i = 1; i <= 1000; ++i) takeover.served(true, false, i * kMillisecond);
  EXPECT_FALSE(takeover.immediate());
}

TEST(TakeoverPolicy, WaitsForAPollingProgramThatSeldomLosesItsProcessor) {
  EXPECT_FALSE(after_late_packets(1000, 20 * kMillisecond).immediate());
}

TEST(TakeoverPolicy, WaitsAgainWhenNoPacketsAreFound) {
  TakeoverPolicy takeover = immediate_takeover();
  for (int i = 0; i < 100; ++i) takeover.served(false, false, 0);
  EXPECT_FALSE(takeover.immediate());
}

TEST(TakeoverPolicy, StaysImmediateWhenEverySecondServeFindsPackets) {
  TakeoverPolicy takeover = immediate_takeover();
  for (int i = 0; i < 500; ++i) takeover.served(false, i % 2 == 0, 0);
  EXPECT_TRUE(takeover.immediate());
}

TEST(TakeoverPolicy, WaitsAgainAfterManyServes) {
  TakeoverPolicy takeover = immediate_takeover();
  for (int i = 0; i < 1000; ++i) takeover.served(false, true, 0);
  EXPECT_FALSE(takeover.immediate());
}

// Work for which memory or descriptors are used up at first.
class FailingWork final : public ServiceWork {
 public:
  bool list_descriptors(std::vector<int>& /*readable*/, std::vector<int>& /*writable*/) override {
    if (++lists_ == 1) throw std::bad_alloc();
    return true;
  }
  Served serve() override {
    if (++serves_ <= 2) throw std::system_error(EMFILE, std::generic_category());
    return Served::kNothing;
  }
  void publish_if_due() override {}
  bool busy() override { return false; }
  std::uint64_t calls() const override { return 0; }
  Nanoseconds next_deadline() const override { return 0; }

  int serves() const { return serves_; }

 private:
  int lists_ = 0;
  std::atomic<int> serves_{0};
};

TEST(ServiceThread, GoesOnAfterAnException) {
  FailingWork work;
  Wakeup wakeup;
  const ServiceThread thread(work, wakeup);
  EXPECT_TRUE(wait_until([&] { return work.serves() > 3; }));
}

// A process may fork while another thread destroys a NIC.
TEST(ServiceThread, MayHaveStoppedBeforeAFork) {
  FailingWork work;
  Wakeup wakeup;
  ServiceThread thread(work, wakeup);
  thread.stop();
  EXPECT_NO_THROW(thread.detach_in_child());
}

}  // namespace
}  // namespace plugfest::roce
