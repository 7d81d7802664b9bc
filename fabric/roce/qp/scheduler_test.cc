#include "fabric/roce/qp/scheduler.h"

#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce {
namespace {

TEST(SchedulerTest, KeepsTheEarliestDeadlineOfItsQueuePairs) {
  Side one(loopback_address(1)), other(loopback_address(2));
  const std::lock_guard lock(one.nic.context().lock);
  Scheduler scheduler;
  scheduler.call_at(*one.queue_pair, 70);
  scheduler.call_at(*one.queue_pair, 90);
  EXPECT_EQ(scheduler.next_deadline(), 70);
  scheduler.call_at(*other.queue_pair, 50);
  EXPECT_EQ(scheduler.next_deadline(), 50);
  scheduler.unschedule(*other.queue_pair);  // as its destructor does; the list of its own NIC has no entry
  scheduler.timer().disarm();
  scheduler.run_timers(70);
  EXPECT_EQ(scheduler.next_deadline(), kNever) << "idle queue pairs have no deadline";
  scheduler.call_at(*one.queue_pair, 80);
  EXPECT_EQ(scheduler.next_deadline(), 80) << "a queue pair whose deadline has passed can get another one";
  scheduler.unschedule(*one.queue_pair);
}

TEST(SchedulerTest, ForgetsAQueuePairThatIsUnscheduled) {
  Side side(loopback_address(1));
  const std::lock_guard lock(side.nic.context().lock);
  Scheduler scheduler;
  scheduler.delay_acknowledgement(*side.queue_pair, 100);
  scheduler.delay_acknowledgement(*side.queue_pair, 900);
  EXPECT_EQ(scheduler.next_deadline(), 100 + Scheduler::kMaxDelay) << "the first acknowledgement decides";
  scheduler.timer().arm(50);
  EXPECT_EQ(scheduler.next_deadline(), 50);
  scheduler.timer().disarm();
  scheduler.release_delayed_acknowledgements();
  EXPECT_EQ(scheduler.next_deadline(), kNever);
  scheduler.call_at(*side.queue_pair, kNever);
  EXPECT_EQ(scheduler.next_deadline(), kNever);
  scheduler.call_at(*side.queue_pair, 70);
  EXPECT_EQ(scheduler.next_deadline(), 70);
  scheduler.timer().disarm();
  scheduler.run_timers(70);
  EXPECT_EQ(scheduler.next_deadline(), kNever) << "an idle queue pair has no deadline of its own";
  scheduler.wait_for_room(*side.queue_pair);
  EXPECT_TRUE(scheduler.any_blocked());
  scheduler.unschedule(*side.queue_pair);
  EXPECT_FALSE(scheduler.any_blocked());
}

}  // namespace
}  // namespace plugfest::roce
