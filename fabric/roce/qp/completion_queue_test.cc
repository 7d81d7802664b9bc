#include "fabric/roce/qp/completion_queue.h"

#include "fabric/roce/tests/two_nics.h"

namespace plugfest::roce {
namespace {

class CompletionEvents : public testing::Test {
 protected:
  // A callback of CompletionQueueEvents.
  static void count(void* test) { ++static_cast<CompletionEvents*>(test)->events_; }

  Side side_{loopback_address(1), 64};
  int events_ = 0;
  CompletionQueue queue_{side_.nic.context(), 4, {.completion = count, .context = this}};
};

// Programs such as UCX arm the queue and sleep without polling again.
TEST_F(CompletionEvents, ComeAtOnceIfTheQueueHoldsACompletion) {
  for (const bool solicited_only : {false, true}) {
    events_ = 0;
    queue_.push({}, false);
    queue_.request_notify(solicited_only);
    EXPECT_EQ(events_, 1);
    ibv_wc completion;
    ASSERT_EQ(queue_.poll(1, &completion), 1);
  }
}

// perftest takes a few completions per event, requests the next event before, and then waits for it.
TEST_F(CompletionEvents, ComeOncePerRequestUntilEachCompletionHadOne) {
  queue_.request_notify(false);
  EXPECT_EQ(events_, 0);
  queue_.push({}, false);
  queue_.push({}, false);
  EXPECT_EQ(events_, 1);
  queue_.request_notify(false);
  EXPECT_EQ(events_, 2);
  queue_.request_notify(false);
  EXPECT_EQ(events_, 2);
  ASSERT_EQ(queue_.resize(2), 0);
  queue_.request_notify(false);
  EXPECT_EQ(events_, 2);
}

TEST_F(CompletionEvents, ComeForTheRestWhenAQueuePairIsDestroyed) {
  ibv_wc destroyed = {};
  destroyed.qp_num = 1;
  queue_.request_notify(false);
  queue_.push(destroyed, false);
  queue_.push({}, false);
  EXPECT_EQ(events_, 1);
  queue_.remove_completions(1);
  queue_.request_notify(false);
  EXPECT_EQ(events_, 2);
}

TEST_F(CompletionEvents, ComeForSolicitedAndFailedCompletionsIfOnlyTheseAreRequested) {
  queue_.request_notify(true);
  queue_.push({}, false);
  EXPECT_EQ(events_, 0);
  queue_.push({}, true);
  EXPECT_EQ(events_, 1);
  ibv_wc completions[2];
  ASSERT_EQ(queue_.poll(2, completions), 2);
  queue_.request_notify(true);
  ibv_wc failed = {};
  failed.status = IBV_WC_WR_FLUSH_ERR;
  queue_.push(failed, false);
  EXPECT_EQ(events_, 2);
}

TEST(CompletionQueue, RaisesAnEventWhenItIsFullAndThenCannotBePolled) {
  Side side(loopback_address(1), 64);
  std::vector<ibv_event_type> events;
  const auto record = [](void* list, ibv_event_type event) {
    static_cast<std::vector<ibv_event_type>*>(list)->push_back(event);
  };
  CompletionQueue queue(side.nic.context(), 2, {.async = record, .context = &events});
  for (int i = 0; i < 3; ++i) queue.push({}, false);
  EXPECT_EQ(events, std::vector<ibv_event_type>{IBV_EVENT_CQ_ERR});
  ibv_wc completion;
  for (const int expected : {1, 1, -1}) EXPECT_EQ(queue.poll(1, &completion), expected);
}

}  // namespace
}  // namespace plugfest::roce
