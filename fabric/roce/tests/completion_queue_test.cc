// Requests for completion events.
#include "fabric/roce/qp/completion_queue.h"

#include <gtest/gtest.h>

#include "fabric/roce/testing/two_nics.h"

namespace plugfest::roce {
namespace {

class CompletionEvents : public testing::Test {
 protected:
  CompletionEvents() : side(loopback_address(1), 64) {}

  Side side;
  int events = 0;
  CompletionQueue queue{
      side.nic.context(), 4, {.completion = [](void* count) { ++*static_cast<int*>(count); }, .context = &events}};
};

// What a program does that arms and sleeps without polling again, such as UCX.
TEST_F(CompletionEvents, ComeAtOnceIfTheQueueHoldsACompletion) {
  for (const bool solicited_only : {false, true}) {
    events = 0;
    queue.push({}, false);
    queue.request_notify(solicited_only);
    EXPECT_EQ(events, 1);
    ibv_wc completion;
    ASSERT_EQ(queue.poll(1, &completion), 1);
  }
}

// perftest takes a few completions per event, requests the next event before, and then waits for it.
TEST_F(CompletionEvents, ComeUntilEachCompletionHadOne) {
  queue.request_notify(false);
  queue.push({}, false);
  queue.push({}, false);
  EXPECT_EQ(events, 1);
  queue.request_notify(false);
  EXPECT_EQ(events, 2);
  queue.request_notify(false);
  EXPECT_EQ(events, 2);
  ASSERT_EQ(queue.resize(2), 0);
  queue.request_notify(false);
  EXPECT_EQ(events, 2);
}

TEST_F(CompletionEvents, ComeForTheRestWhenAQueuePairIsDestroyed) {
  ibv_wc destroyed = {};
  destroyed.qp_num = 1;
  queue.request_notify(false);
  queue.push(destroyed, false);
  queue.push({}, false);
  EXPECT_EQ(events, 1);
  queue.remove_completions(1);
  queue.request_notify(false);
  EXPECT_EQ(events, 2);
}

TEST_F(CompletionEvents, ComeOncePerRequest) {
  queue.request_notify(false);
  EXPECT_EQ(events, 0);
  queue.push({}, false);
  queue.push({}, false);
  EXPECT_EQ(events, 1);
}

TEST_F(CompletionEvents, ComeForSolicitedAndFailedCompletionsIfOnlyTheseAreRequested) {
  queue.request_notify(true);
  queue.push({}, false);
  EXPECT_EQ(events, 0);
  queue.push({}, true);
  EXPECT_EQ(events, 1);
  ibv_wc completions[2];
  ASSERT_EQ(queue.poll(2, completions), 2);
  queue.request_notify(true);
  ibv_wc failed = {};
  failed.status = IBV_WC_WR_FLUSH_ERR;
  queue.push(failed, false);
  EXPECT_EQ(events, 2);
}

}  // namespace
}  // namespace plugfest::roce
