#include "harness/kernels/run/held_puts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace plugfest::kernels {
namespace {

using namespace std::chrono_literals;

class HeldPutsTest : public testing::Test {
 protected:
  static constexpr std::size_t kWords = 8;

  /// Posts the descriptor of a put in the next place of the memory of all queues.
  void post(HeldPuts::Time now, std::uint64_t rank = 0) {
    for (std::size_t i = 0; i < kWords; ++i) puts_.hold({0, rank}, &queue_[posted_ * kWords + i], 1, now);
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
  EXPECT_FALSE(puts_.release_due(true, start_));
  EXPECT_EQ(seen(), 0U);
  EXPECT_TRUE(puts_.release_due(true, puts_.due()));
  EXPECT_EQ(seen(), 1U);
  EXPECT_TRUE(puts_.empty());
}

TEST_F(HeldPutsTest, AreReleasedOneAfterTheOther) {
  post(start_);
  post(start_);
  const HeldPuts::Time first = puts_.due();
  EXPECT_TRUE(puts_.release_due(true, first));
  EXPECT_FALSE(puts_.release_due(true, first));
  EXPECT_EQ(seen(), 1U);
  EXPECT_GT(puts_.due(), first);
  EXPECT_TRUE(puts_.release_due(true, puts_.due()));
  EXPECT_EQ(seen(), 2U);
}

TEST_F(HeldPutsTest, StayForLongerWhileThreadsOfTheBlockRunButNotForever) {
  post(start_);
  EXPECT_FALSE(puts_.release_due(false, puts_.due()));
  EXPECT_TRUE(puts_.release_due(false, puts_.due() + 1s));
  EXPECT_EQ(seen(), 1U);
}

TEST_F(HeldPutsTest, AreOvertakenByPutsToOtherRanks) {
  constexpr std::size_t kPuts = 10;
  for (std::size_t i = 0; i < kPuts; ++i) post(start_, i);
  std::vector<std::size_t> order;
  while (!puts_.empty()) {
    EXPECT_TRUE(puts_.release_due(true, puts_.due()));
    for (std::size_t i = 0; i < kPuts; ++i)
      if (queue_[i * kWords] == 1 && std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
  }
  EXPECT_EQ(order.size(), kPuts);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(HeldPutsTest, WaitForLessTimeIfThereAreMany) {
  const auto time_for = [&](int puts) {
    for (int i = 0; i < puts; ++i) post(start_);
    HeldPuts::Time now = start_;
    for (; !puts_.empty(); puts_.release_due(true, now)) now = puts_.due();
    return now - start_;
  };
  const auto some = time_for(20), more = time_for(80);
  EXPECT_EQ(seen(), 100U);
  EXPECT_LT(more, 2 * some);
}

}  // namespace
}  // namespace plugfest::kernels
