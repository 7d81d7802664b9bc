#include "harness/kernels/run/held_puts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace plugfest::kernels {
namespace {

using namespace std::chrono_literals;

class HeldPutsTest : public testing::Test {
 protected:
  static constexpr std::size_t kWords = 8;

  /// Posts the descriptor of a put in the next place of the queue.
  void post(HeldPuts::Time now) {
    for (std::size_t i = 0; i < kWords; ++i) puts_.hold(&queue_[posted_ * kWords + i], 1, now);
    ++posted_;
  }
  /// The puts that NCCL's proxy sees; each one entirely or not at all.
  std::size_t seen() const {
    const auto words = static_cast<std::size_t>(std::count(queue_.begin(), queue_.end(), 1U));
    EXPECT_EQ(words % kWords, 0U);
    EXPECT_TRUE(std::all_of(queue_.begin(), queue_.begin() + words, [](std::uint64_t word) { return word == 1; }));
    return words / kWords;
  }

  const HeldPuts::Time start_{1h};
  alignas(64) std::array<std::uint64_t, 100 * kWords> queue_{};
  std::size_t posted_ = 0;
  HeldPuts puts_{1};
};

TEST_F(HeldPutsTest, StayUntilTheyAreDue) {
  post(start_);
  EXPECT_FALSE(puts_.let_go_if_due(true, start_));
  EXPECT_EQ(seen(), 0U);
  EXPECT_TRUE(puts_.let_go_if_due(true, puts_.due()));
  EXPECT_EQ(seen(), 1U);
  EXPECT_TRUE(puts_.empty());
}

TEST_F(HeldPutsTest, GoOnOneAfterTheOther) {
  post(start_);
  post(start_);
  const HeldPuts::Time first = puts_.due();
  EXPECT_TRUE(puts_.let_go_if_due(true, first));
  EXPECT_FALSE(puts_.let_go_if_due(true, first));
  EXPECT_EQ(seen(), 1U);
  EXPECT_GT(puts_.due(), first);
  EXPECT_TRUE(puts_.let_go_if_due(true, puts_.due()));
  EXPECT_EQ(seen(), 2U);
}

TEST_F(HeldPutsTest, StayForLongerWhileThreadsOfTheBlockRunButNotForEver) {
  post(start_);
  EXPECT_FALSE(puts_.let_go_if_due(false, puts_.due()));
  EXPECT_TRUE(puts_.let_go_if_due(false, puts_.due() + 1s));
  EXPECT_EQ(seen(), 1U);
}

TEST_F(HeldPutsTest, GoOnSeveralAtATimeAfterMany) {
  for (int i = 0; i < 100; ++i) post(start_);
  int steps = 0;
  for (; !puts_.empty(); ++steps) EXPECT_TRUE(puts_.let_go_if_due(true, puts_.due()));
  EXPECT_EQ(seen(), 100U);
  EXPECT_LT(steps, 50);
}

}  // namespace
}  // namespace plugfest::kernels
