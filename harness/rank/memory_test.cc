#include "harness/rank/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace plugfest::rank {
namespace {

TEST(Pattern, ComparesEveryByte) {
  for (const std::size_t size : {0u, 1u, 7u, 8u, 9u, 1000u}) {
    std::vector<std::byte> bytes(size);
    fill_pattern(bytes.data(), size, 5);
    EXPECT_EQ(compare_pattern(bytes.data(), size, 5).bytes, 0u);
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] ^= std::byte{1};
      const Difference difference = compare_pattern(bytes.data(), size, 5);
      EXPECT_EQ(difference.bytes, 1u);
      EXPECT_EQ(difference.offset, i);
      EXPECT_EQ(difference.got ^ difference.expected, 1);
      bytes[i] ^= std::byte{1};
    }
  }
}

TEST(Pattern, DependsOnlyOnSeedAndPosition) {
  std::vector<std::byte> bytes(100);
  fill_pattern(bytes.data(), bytes.size(), 5);
  EXPECT_EQ(compare_pattern(bytes.data(), 13, 5).bytes, 0u);
}

TEST(Pattern, DiffersInEveryWordForDifferentSeeds) {
  std::vector<std::uint64_t> first(512), other(512);
  fill_pattern(first.data(), 4096, 1);
  for (std::uint64_t seed = 2; seed < 50; ++seed) {
    fill_pattern(other.data(), 4096, seed);
    for (std::size_t i = 0; i < first.size(); ++i) ASSERT_NE(first[i], other[i]) << seed;
  }
}

Stream a_plan() {
  Stream stream;
  stream.count = 1000;
  stream.seed = 42;
  stream.sizes = {0, 1, 4096};
  stream.group = 5;
  return stream;
}

TEST(StreamPlan, GroupsCoverEveryMessageOnce) {
  const StreamPlan plan(a_plan());
  std::uint64_t next = 0;
  std::set<std::uint32_t> widths;
  for (Group group = plan.next({0, 0, 0}); group.width != 0; group = plan.next(group)) {
    EXPECT_EQ(group.first, next);
    next += group.width;
    widths.insert(group.width);
    std::vector<std::uint32_t> order = plan.posting_order(group);
    std::sort(order.begin(), order.end());
    std::vector<std::uint32_t> all(group.width);
    std::iota(all.begin(), all.end(), 0u);
    EXPECT_EQ(order, all);
  }
  EXPECT_EQ(next, 1000u);
  EXPECT_EQ(widths, (std::set<std::uint32_t>{1, 2, 3, 4, 5}));
}

TEST(StreamPlan, EveryMessageHasItsOwnContents) {
  const StreamPlan plan(a_plan());
  std::set<std::uint64_t> seen;
  for (std::uint64_t k = 0; k < 1000; ++k) seen.insert(plan.contents(k));
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(StreamPlan, RefusesEmptySizes) {
  Stream stream = a_plan();
  stream.sizes.clear();
  EXPECT_THROW(StreamPlan{stream}, std::invalid_argument);
}

}  // namespace
}  // namespace plugfest::rank
