#include "fabric/roce/service_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>

#include "fabric/roce/port/wakeup.h"
#include "fabric/system/testing.h"

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
