#include "harness/testbed/path.h"

#include <gtest/gtest.h>

#include <set>

namespace plugfest::testbed {
namespace {

TEST(DisjointPaths, TheTriangleHasThree) {
  const std::vector<RankPath> paths = disjoint_paths(topology::named("triangle"));
  EXPECT_EQ(paths.size(), 3u);
  std::set<std::string> ranks;
  for (const RankPath& path : paths) ranks.insert({path.near, path.far});
  EXPECT_EQ(ranks.size(), 6u) << "two paths share a rank";
}

}  // namespace
}  // namespace plugfest::testbed
