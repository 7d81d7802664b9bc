// Kinds of NICs, and the ranks and paths that a test bed offers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <stdexcept>

#include "fabric/system/testing.h"
#include "harness/bed/nic_kind.h"
#include "harness/bed/test_bed.h"

namespace plugfest::bed {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string refusal(const std::string& name, const NicOptions& options = {}) {
  return error_message([&] { make_nic_kind(name, options); });
}

TEST(NicKinds, AreFoundByName) {
  for (const char* name : {"roce", "loopback", "rxe", "vm", "system"}) {
    EXPECT_EQ(make_nic_kind(name)->name(), name);
    EXPECT_THAT(describe_nic_kinds(), HasSubstr(std::string(name) + ", "));
  }
  EXPECT_EQ(default_nic_kind()->name(), "roce");
}

TEST(NicKinds, UnknownNameListsAllKinds) {
  EXPECT_EQ(refusal("mlx5"), "--nic \"mlx5\": expected one of roce, loopback, rxe, vm and system");
}

TEST(NicKinds, RefuseOptionsOfOtherKinds) {
  EXPECT_EQ(refusal("roce", {.kernel = "/boot"}), "--kernel: only --nic vm boots one");
  EXPECT_EQ(refusal("vm", {.kernel = "/boot"}), "no error");
  EXPECT_EQ(refusal("vm", {.allow_host_changes = true}), "--allow-host-changes: only --nic rxe makes any");
  EXPECT_EQ(refusal("rxe", {.allow_host_changes = true}), "no error");
}

TEST(NicKinds, OnlyTheNicInUserSpaceOnNamespacesSupportsFaultsAndBackgroundFabrics) {
  for (const char* name : {"loopback", "rxe", "vm", "system"}) {
    EXPECT_FALSE(make_nic_kind(name)->support().faults) << name;
    EXPECT_FALSE(make_nic_kind(name)->support().background_fabric) << name;
  }
  EXPECT_TRUE(default_nic_kind()->support().faults);
  EXPECT_TRUE(default_nic_kind()->support().background_fabric);
}

TEST(LostPeers, AreReportedSoonUnlessTheUserHasSetTheTimeout) {
  control::Environment environment;
  ::unsetenv("NCCL_IB_TIMEOUT");
  report_lost_peers_soon(environment);
  EXPECT_THAT(environment, testing::ElementsAre(testing::Pair("NCCL_IB_TIMEOUT", "14")));
  environment.clear();
  ::setenv("NCCL_IB_TIMEOUT", "20", 1);
  report_lost_peers_soon(environment);
  EXPECT_THAT(environment, testing::IsEmpty());
  ::unsetenv("NCCL_IB_TIMEOUT");
}

TEST(LoopbackNic, RefusesTopologiesWithRouters) {
  EXPECT_THAT(error_message([&] { make_nic_kind("loopback")->check_topology(topology::named("fat-tree:2")); }),
              StartsWith("--nic loopback: edge1 is a router"));
}

TEST(DisjointPaths, ThereAreThreeInTheTriangle) {
  const std::vector<RankPath> paths = disjoint_paths(topology::named("triangle"));
  EXPECT_EQ(paths.size(), 3u);
  std::set<std::string> ranks;
  for (const RankPath& path : paths) ranks.insert({path.near, path.far});
  EXPECT_EQ(ranks.size(), 6u) << "two paths share a rank";
}

TEST(RankGroup, EachPairOfTheTriangleHasItsOwnInterfaces) {
  const RankGroup hosts = ranks_of_hosts(topology::named("triangle"));
  EXPECT_EQ(hosts.ranks, (std::vector<std::string>{"a", "b", "c"}));
  const std::vector<std::vector<std::string>> expected = {
      {"", "a.eth0", "a.eth1"}, {"b.eth0", "", "b.eth1"}, {"c.eth0", "c.eth1", ""}};
  EXPECT_EQ(hosts.interfaces, expected);
}

TEST(RankGroup, RanksOfACompleteGroupReachEachOther) {
  const RankGroup line = ranks_of_hosts(topology::named("line:3"));
  EXPECT_EQ(line.interfaces[0][2], "") << "the ends of a line reach each other";
  EXPECT_EQ(line.complete(2)->ranks, (std::vector<std::string>{"h1", "h2"}));
  EXPECT_FALSE(line.complete(3));
  EXPECT_EQ(ranks_of_hosts(topology::named("star:4")).complete(3)->interfaces[0][2], "h1.eth0");
}

TEST(RankGroup, HasTheInterfacesOfItsPath) {
  const RankGroup path(RankPath{"a.eth0", "b.eth1"});
  EXPECT_EQ(path.ranks, (std::vector<std::string>{"a.eth0", "b.eth1"}));
  EXPECT_EQ(path.interfaces[0][1], "a.eth0");
  EXPECT_EQ(path.interfaces[1][0], "b.eth1");
}

}  // namespace
}  // namespace plugfest::bed
