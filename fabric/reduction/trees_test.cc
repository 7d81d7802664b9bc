#include "fabric/reduction/trees.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "fabric/system/testing.h"
#include "fabric/topology/file.h"

namespace plugfest::reduction {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

Trees trees_of(const char* topology) { return Trees(topology::named(topology)); }

// A socket on interface `interface` of each host.
std::vector<RankSocket> all_hosts(const Trees& trees, std::size_t interface = 0) {
  std::vector<RankSocket> ranks;
  for (const topology::Host& host : trees.graph().hosts) ranks.push_back({host.interfaces.at(interface).address, 5000});
  return ranks;
}

std::string refusal(const Trees& trees, const std::vector<RankSocket>& ranks) {
  std::string reason;
  return trees.connect(ranks, reason) ? "none" : reason;
}

// Checks that parents and children name each other, that all nodes are below one root, and that each rank is a child.
void expect_consistent(const Trees& trees, const std::vector<RankSocket>& ranks) {
  std::string reason;
  const std::optional<GroupTree> group = trees.connect(ranks, reason);
  ASSERT_TRUE(group) << reason;
  std::size_t roots = 0;
  std::size_t children = 0;
  for (const GroupNode& node : group->nodes) {
    children += node.children.size();
    const std::vector<topology::Ipv4Address> own = trees.addresses(node.index);
    for (const Peer& child : node.children) EXPECT_THAT(own, ::testing::Contains(child.local));
    if (!node.parent) {
      ++roots;
      continue;
    }
    EXPECT_THAT(own, ::testing::Contains(node.parent->local));
    bool is_found = false;
    for (const GroupNode& parent : group->nodes) {
      if (node.child_of_parent >= parent.children.size()) continue;
      const Peer& child = parent.children[node.child_of_parent];
      is_found = is_found || (child.socket.address == node.parent->local && child.local == node.parent->socket.address);
    }
    EXPECT_TRUE(is_found) << trees.graph().switches[node.index].name;
  }
  EXPECT_EQ(roots, 1u);
  EXPECT_EQ(children, ranks.size() + group->nodes.size() - 1);
  ASSERT_THAT(group->ranks, SizeIs(ranks.size()));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    bool is_child = false;
    for (const GroupNode& node : group->nodes) {
      if (group->ranks[rank].child >= node.children.size()) continue;
      const Peer& child = node.children[group->ranks[rank].child];
      is_child = is_child || (child.socket == ranks[rank] && child.local == group->ranks[rank].address);
    }
    EXPECT_TRUE(is_child) << rank;
  }
}

TEST(Trees, AFatTreeHasOneTreeWithOneCoreAndOneAggregationSwitchOfEachPod) {
  const Trees trees = trees_of("fat-tree:4");
  ASSERT_THAT(trees.all(), SizeIs(1));
  EXPECT_THAT(trees.all()[0].switches, SizeIs(1 + 4 + 8));
  EXPECT_EQ(trees.graph().switches[trees.all()[0].switches[0]].tier, 3);
  expect_consistent(trees, all_hosts(trees));
}

TEST(Trees, ALeafSpineHasOneSpineAndAllLeaves) {
  const Trees trees = trees_of("leaf-spine:2,3,2");
  ASSERT_THAT(trees.all(), SizeIs(1));
  EXPECT_EQ(trees.graph().switches[trees.all()[0].switches[0]].tier, 2);
  expect_consistent(trees, all_hosts(trees));
}

TEST(Trees, AGroupBelowOneSwitchUsesOnlyThatSwitch) {
  const Trees trees = trees_of("fat-tree:4");
  std::vector<RankSocket> ranks = all_hosts(trees);
  ranks.resize(2);
  std::string reason;
  const auto group = trees.connect(ranks, reason);
  ASSERT_TRUE(group);
  EXPECT_THAT(group->nodes, SizeIs(1));
  ranks = all_hosts(trees);
  ranks.resize(4);
  EXPECT_THAT(trees.connect(ranks, reason)->nodes, SizeIs(3)) << "two edge switches and one above them";
  expect_consistent(trees, ranks);
}

TEST(Trees, TheBridgeOfAStarHasAFreeAddressOfItsSubnet) {
  const Trees trees = trees_of("star:4");
  ASSERT_THAT(trees.all(), SizeIs(1));
  const auto bridge = trees.bridge_address(0);
  ASSERT_TRUE(bridge);
  EXPECT_TRUE(trees.graph().links[0].subnet.contains(bridge->address));
  for (const RankSocket& rank : all_hosts(trees)) EXPECT_NE(rank.address, bridge->address);
  expect_consistent(trees, all_hosts(trees));
}

TEST(Trees, ABridgeWithoutAFreeAddressHasNoTree) {
  const ScratchFolder folder;
  const auto trees = [&](const std::string& subnet) {
    const std::string file = folder / "topology.yaml";
    std::ofstream(file) << "hosts: [a, b]\nswitches: [{name: s1, subnet: " << subnet
                        << "}]\nlinks: [{ends: [a, s1]}, {ends: [b, s1]}]\n";
    return Trees(topology::read_topology(file)).all().size();
  };
  EXPECT_EQ(trees("10.1.0.0/30"), 0u);
  EXPECT_EQ(trees("10.1.0.0/29"), 1u);
}

TEST(Trees, TwoRanksOfAHostAreTwoChildren) {
  const Trees trees = trees_of("star:4");
  std::vector<RankSocket> ranks = all_hosts(trees);
  ranks.push_back({ranks[0].address, 5001});
  expect_consistent(trees, ranks);
}

TEST(Trees, EachRailHasATreeAndNoGroupUsesTwo) {
  const Trees trees = trees_of("rail:2,4");
  EXPECT_THAT(trees.all(), SizeIs(2));
  expect_consistent(trees, all_hosts(trees, 0));
  expect_consistent(trees, all_hosts(trees, 1));
  std::vector<RankSocket> ranks = all_hosts(trees, 0);
  ranks[3] = all_hosts(trees, 1)[3];
  EXPECT_THAT(refusal(trees, ranks), HasSubstr("no aggregation tree reaches both"));
}

TEST(Trees, HostsWithoutSwitchesHaveNoTree) {
  const Trees trees = trees_of("triangle");
  EXPECT_THAT(trees.all(), SizeIs(0));
  EXPECT_THAT(refusal(trees, all_hosts(trees)), HasSubstr("no aggregation tree reaches 192.168.100.1"));
}

TEST(Trees, AnAddressOfNoHostHasNoTree) {
  const Trees trees = trees_of("star:4");
  EXPECT_THAT(refusal(trees, {{{0x01020304}, 1}}), HasSubstr("1.2.3.4"));
}

TEST(Trees, MarkTheirSwitchesAndLinks) {
  const Trees trees(topology::named("fat-tree:4"));
  const topology::Marks marks = trees.marks();
  EXPECT_EQ(marks.switches.size(), trees.all().front().switches.size());
  EXPECT_EQ(marks.roots, (std::set<std::size_t>{trees.all().front().switches.front()}));
  // One link to each host, and one to the parent of each switch but the root.
  EXPECT_EQ(marks.links.size(), trees.graph().hosts.size() + marks.switches.size() - 1);
}

}  // namespace
}  // namespace plugfest::reduction
