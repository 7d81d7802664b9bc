#include "harness/bed/path.h"

#include <gtest/gtest.h>

#include <set>

namespace plugfest::bed {
namespace {

TEST(DisjointPaths, TheTriangleHasThree) {
  const std::vector<RankPath> paths = disjoint_paths(topology::named("triangle"));
  EXPECT_EQ(paths.size(), 3u);
  std::set<std::string> ranks;
  for (const RankPath& path : paths) ranks.insert({path.near, path.far});
  EXPECT_EQ(ranks.size(), 6u) << "two paths share a rank";
}

TEST(RankGroup, InTheTriangleEachPairHasItsOwnInterfaces) {
  const RankGroup hosts = ranks_of_hosts(topology::named("triangle"));
  EXPECT_EQ(hosts.ranks, (std::vector<std::string>{"a", "b", "c"}));
  const std::vector<std::vector<std::string>> expected = {
      {"", "a.eth0", "a.eth1"}, {"b.eth0", "", "b.eth1"}, {"c.eth0", "c.eth1", ""}};
  EXPECT_EQ(hosts.interfaces, expected);
}

TEST(RankGroup, AGroupIsComplete) {
  const RankGroup line = ranks_of_hosts(topology::named("line:3"));
  EXPECT_EQ(line.interfaces[0][2], "") << "the ends of a line reach each other";
  EXPECT_EQ(line.complete(2)->ranks, (std::vector<std::string>{"h1", "h2"}));
  EXPECT_FALSE(line.complete(3));
  EXPECT_EQ(ranks_of_hosts(topology::named("star:4")).complete(3)->interfaces[0][2], "h1.eth0");
}

TEST(RankGroup, OfAPathHasItsInterfaces) {
  const RankGroup path(RankPath{"a.eth0", "b.eth1"});
  EXPECT_EQ(path.ranks, (std::vector<std::string>{"a.eth0", "b.eth1"}));
  EXPECT_EQ(path.interfaces[0][1], "a.eth0");
  EXPECT_EQ(path.interfaces[1][0], "b.eth1");
}

}  // namespace
}  // namespace plugfest::bed
