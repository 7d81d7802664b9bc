#include "fabric/roce/qp/response_queue.h"

#include <gtest/gtest.h>

namespace plugfest::roce {
namespace {

class Responses : public testing::Test {
 protected:
  Responses() {
    queue_.set_capacity(4);
    for (const std::uint32_t packets : {3u, 1u, 2u}) {
      Response response;
      response.packets = packets;
      queue_.push(response);
    }
  }

  void add(std::uint32_t count) {
    for (; count > 0; --count) {
      ASSERT_NE(queue_.next(), nullptr);
      if (++queue_.next()->sent == queue_.next()->packets) queue_.advance();
    }
  }

  // Expects that the next packet is number `sent` of a response with `packets` packets.
  void expect_next(std::uint32_t packets, std::uint32_t sent) {
    ASSERT_NE(queue_.next(), nullptr);
    EXPECT_EQ(queue_.next()->packets, packets);
    EXPECT_EQ(queue_.next()->sent, sent);
  }

  ResponseQueue queue_;
};

TEST_F(Responses, AreSentAgainIfTheirBatchIsDiscarded) {
  queue_.begin_batch(0);
  add(5);
  queue_.repeat_batch();
  expect_next(3, 0);
  add(3);
  expect_next(1, 0);
  add(1);
  expect_next(2, 0);
}

TEST_F(Responses, AreNotSentAgainIfALaterBatchIsDiscarded) {
  queue_.begin_batch(0);
  add(2);
  queue_.begin_batch(2);  // the kernel has the first two packets
  add(2);
  queue_.repeat_batch();
  expect_next(3, 2);
  add(1);
  expect_next(1, 0);
}

TEST_F(Responses, StayInTheQueueUntilTheirBatchIsWithTheKernel) {
  queue_.begin_batch(0);
  add(6);
  EXPECT_EQ(queue_.next(), nullptr);
  EXPECT_FALSE(queue_.empty());
  queue_.push({});
  EXPECT_TRUE(queue_.full());
  queue_.advance();
  queue_.end_batch();
  EXPECT_TRUE(queue_.empty());
}

TEST_F(Responses, AreGoneAfterClear) {
  queue_.begin_batch(0);
  add(4);
  queue_.clear();
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(queue_.next(), nullptr);
}

TEST_F(Responses, StayInAQueueOfAnotherCapacity) {
  queue_.set_capacity(1);
  EXPECT_TRUE(queue_.full());
  expect_next(3, 0);
  add(3);
  expect_next(1, 0);
  queue_.set_capacity(5);
  EXPECT_FALSE(queue_.full());
  add(1);
  expect_next(2, 0);
}

TEST(AtomicResults, StayInAQueueOfAnotherCapacity) {
  AtomicResults results;
  results.set_capacity(2);
  for (std::uint32_t i = 1; i <= 3; ++i) results.push(Psn(i), 10 * i);
  results.set_capacity(4);
  EXPECT_EQ(results.find(Psn(0)), std::nullopt);
  EXPECT_EQ(results.find(Psn(2)), 20u);
  EXPECT_EQ(results.find(Psn(3)), 30u);
  results.set_capacity(1);
  EXPECT_EQ(results.find(Psn(2)), std::nullopt);
  EXPECT_EQ(results.find(Psn(3)), 30u);
  results.push(Psn(4), 40);
  EXPECT_EQ(results.find(Psn(3)), std::nullopt);
  EXPECT_EQ(results.find(Psn(4)), 40u);
}

}  // namespace
}  // namespace plugfest::roce
