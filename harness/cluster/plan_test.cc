// Rounds, outliers and differences of hosts.
#include <gtest/gtest.h>

#include <set>

#include "harness/cluster/plan.h"

namespace plugfest::cluster {
namespace {

TEST(Rounds, EachPairMeetsOnceAndNobodyIsInTwoPairsOfARound) {
  for (std::size_t count = 0; count <= 65; ++count) {
    std::set<Pair> met;
    for (std::size_t round = 0; round < rounds_of(count); ++round) {
      std::set<std::size_t> busy;
      const std::vector<Pair> pairs = pairs_of_round(count, round);
      EXPECT_EQ(pairs.size(), count / 2) << count << " members, round " << round;
      for (const Pair& pair : pairs) {
        EXPECT_LT(pair.first, pair.second);
        EXPECT_LT(pair.second, count);
        EXPECT_TRUE(busy.insert(pair.first).second && busy.insert(pair.second).second) << count << " round " << round;
        EXPECT_TRUE(met.insert(pair).second) << count << ": " << pair.first << " " << pair.second << " meet twice";
      }
    }
    EXPECT_EQ(met.size(), count < 2 ? 0 : count * (count - 1) / 2) << count;
  }
}

// All pairs of `count` members with `value(one, other)`.
template <typename Value>
std::vector<PairFigure> figures_of(std::size_t count, Value value) {
  std::vector<PairFigure> figures;
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = i + 1; j < count; ++j) figures.push_back({i, j, value(i, j)});
  return figures;
}

// A constant between 0.9 and 1.1.
double noise(std::size_t i, std::size_t j) { return 0.9 + 0.2 * static_cast<double>((i * 7 + j * 13) % 11) / 10; }

TEST(Outliers, OneSlowMemberIsNamedAndNotItsPartners) {
  for (const std::size_t count : {3u, 4u, 5u, 16u, 64u}) {
    const auto figures =
        figures_of(count, [](std::size_t i, std::size_t j) { return noise(i, j) * (i == 2 || j == 2 ? 1 : 10); });
    const Outliers found = find_slow(figures);
    ASSERT_EQ(found.members.size(), 1u) << count;
    EXPECT_EQ(found.members.front().number, 2u) << count;
    EXPECT_TRUE(found.pairs.empty()) << count;
    EXPECT_NEAR(found.median, 10, 1) << count;
  }
}

TEST(Outliers, ASlowMemberIsNamedAmongFiguresThatVary) {
  const auto figures = figures_of(
      6, [](std::size_t i, std::size_t j) { return i == 2 || j == 2 ? 4 : static_cast<double>(10 + 15 * (i + j)); });
  const Outliers found = find_slow(figures);
  ASSERT_EQ(found.members.size(), 1u);
  EXPECT_EQ(found.members.front().number, 2u);
}

TEST(Outliers, ASlowMemberAndASlowPairOfTheOthersAreBothNamed) {
  for (const std::size_t count : {4u, 5u, 16u, 64u}) {
    const auto figures = figures_of(count, [](std::size_t i, std::size_t j) {
      return noise(i, j) * (i == 2 || j == 2 ? 9 : i == 0 && j == 3 ? 14 : 93);
    });
    const Outliers found = find_slow(figures);
    ASSERT_EQ(found.members.size(), 1u) << count;
    EXPECT_EQ(found.members.front().number, 2u) << count;
    ASSERT_EQ(found.pairs.size(), 1u) << count;
    EXPECT_EQ(figures[found.pairs.front()].value, noise(0, 3) * 14) << count;
    EXPECT_NEAR(found.median, 93, 10) << count;
  }
}

TEST(Outliers, OneSlowPairIsNamedAndNotItsMembers) {
  for (const std::size_t count : {4u, 5u, 16u, 64u}) {
    const auto figures =
        figures_of(count, [](std::size_t i, std::size_t j) { return noise(i, j) * (i == 1 && j == 3 ? 1 : 10); });
    const Outliers found = find_slow(figures);
    EXPECT_TRUE(found.members.empty()) << count;
    ASSERT_EQ(found.pairs.size(), 1u) << count;
    EXPECT_EQ(figures[found.pairs.front()].one, 1u);
    EXPECT_EQ(figures[found.pairs.front()].other, 3u);
  }
}

TEST(Outliers, NoiseIsNotNamed) {
  for (const std::size_t count : {2u, 3u, 4u, 16u, 64u}) {
    const Outliers found = find_slow(figures_of(count, noise));
    EXPECT_TRUE(found.members.empty() && found.pairs.empty()) << count;
  }
  // Figures that differ by a factor of 8 without a pattern: usual deviations are not outliers.
  const Outliers found = find_slow(
      figures_of(16, [](std::size_t i, std::size_t j) { return static_cast<double>(1 + (i * 31 + j * 17) % 8); }));
  EXPECT_TRUE(found.members.empty() && found.pairs.empty());
}

TEST(Differences, NameTheHostThatDiffers) {
  const auto facts = [](const char* firmware, const char* plugin) {
    return std::string(R"({"kernel":"6.1","plugin":{"sha256":")") + plugin +
           R"("},"devices":[{"name":"mlx5_0","firmware":")" + firmware + R"(","ports":[{"port":1,"mtu":9000}]}]})";
  };
  const auto found = find_differences({{"h1", facts("20.31", "aa")},
                                       {"h2", facts("20.31", "aa")},
                                       {"h3", facts("20.29", "aa")},
                                       {"h4", facts("20.31", "bb")}});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].text(), "firmware of mlx5_0: 20.31 on h1, h2, h4; 20.29 on h3");
  EXPECT_EQ(found[1].text(), "plugin, SHA-256: aa on h1, h2, h3; bb on h4");
}

TEST(Differences, TakeAnyText) {
  EXPECT_TRUE(
      find_differences({{"a", "{"}, {"b", "[1]"}, {"c", "{}"}, {"d", R"({"devices":[7,{"name":1}]})"}}).empty());
  const auto found = find_differences({{"a", R"({"kernel":"6","devices":[{"name":"x","ports":[3]}]})"},
                                       {"b", R"({"kernel":"6","devices":[{"name":"x"}]})"},
                                       {"c", R"({"kernel":"6"})"}});
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].text(), "RDMA devices: 0 on c; 1 on b");
}

}  // namespace
}  // namespace plugfest::cluster
