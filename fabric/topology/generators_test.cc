#include "fabric/topology/graph.h"

#include <gmock/gmock.h>

#include <set>
#include <vector>

#include "fabric/system/testing.h"

namespace plugfest::topology {
namespace {

using testing::ElementsAre;

std::string message_of(const std::string& specification) {
  return error_message([&] { named(specification); });
}

// "h1-h2 10.0.0.0/30"
std::vector<std::string> links_of(const Graph& graph) {
  std::vector<std::string> texts;
  for (const Link& link : graph.links)
    texts.push_back(graph.node_name(link.ends[0]) + "-" + graph.node_name(link.ends[1]) + " " + link.subnet.text());
  return texts;
}

std::vector<std::string> paths_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Path& path : graph.paths())
    names.push_back(graph.interface_name(path.from) + "-" + graph.interface_name(path.to));
  return names;
}

TEST(NamedTopologies, PairHasOneLink) {
  EXPECT_THAT(links_of(named("pair")), ElementsAre("a-b 10.0.0.0/30"));
  EXPECT_THAT(paths_of(named("pair")), ElementsAre("a.eth0-b.eth0"));
}

TEST(NamedTopologies, TriangleHasThreePaths) {
  EXPECT_THAT(paths_of(named("triangle")), ElementsAre("a.eth0-b.eth0", "a.eth1-c.eth0", "b.eth1-c.eth1"));
}

TEST(NamedTopologies, NeighborsCanHaveSeveralLinks) {
  EXPECT_THAT(links_of(named("pair:links=2")), ElementsAre("a-b 10.0.0.0/30", "a-b 10.0.0.4/30"));
  EXPECT_THAT(paths_of(named("pair:links=2")), ElementsAre("a.eth0-b.eth0", "a.eth1-b.eth1"));
  EXPECT_THAT(links_of(named("triangle:links=2")),
              ElementsAre("a-b 192.168.100.0/24", "a-b 192.168.101.0/24", "a-c 192.168.102.0/24",
                          "a-c 192.168.103.0/24", "b-c 192.168.104.0/24", "b-c 192.168.105.0/24"));
  EXPECT_EQ(named("ring:4,links=2").links.size(), 8u);
}

TEST(NamedTopologies, MeshConnectsEachPair) {
  EXPECT_THAT(links_of(named("mesh:4")), ElementsAre("h1-h2 10.0.0.0/30", "h1-h3 10.0.0.4/30", "h1-h4 10.0.0.8/30",
                                                     "h2-h3 10.0.0.12/30", "h2-h4 10.0.0.16/30", "h3-h4 10.0.0.20/30"));
}

TEST(NamedTopologies, RingIsAClosedLine) {
  EXPECT_THAT(links_of(named("line:3")), ElementsAre("h1-h2 10.0.0.0/30", "h2-h3 10.0.0.4/30"));
  EXPECT_THAT(links_of(named("ring:3")), ElementsAre("h1-h2 10.0.0.0/30", "h2-h3 10.0.0.4/30", "h3-h1 10.0.0.8/30"));
  EXPECT_THAT(paths_of(named("line:3")), ElementsAre("h1.eth0-h2.eth0", "h2.eth1-h3.eth0"));
}

TEST(NamedTopologies, StarHasOneSubnet) {
  const Graph star = named("star:3");
  EXPECT_THAT(links_of(star), ElementsAre("h1-s1 10.0.0.0/16", "h2-s1 10.0.0.0/16", "h3-s1 10.0.0.0/16"));
  EXPECT_EQ(star.hosts[0].interfaces[0].address.text(), "10.0.0.1");
  EXPECT_EQ(star.hosts[2].interfaces[0].address.text(), "10.0.0.3");
  EXPECT_EQ(star.switches[0].interfaces[2].address.text(), "0.0.0.0");
  EXPECT_THAT(paths_of(star), ElementsAre("h1.eth0-h2.eth0", "h1.eth0-h3.eth0", "h2.eth0-h3.eth0"));
}

TEST(NamedTopologies, RailsAreSeparateSubnets) {
  const Graph rail = named("rail:2,2");
  EXPECT_THAT(links_of(rail), ElementsAre("h1-rail1 10.0.0.0/16", "h1-rail2 10.1.0.0/16", "h2-rail1 10.0.0.0/16",
                                          "h2-rail2 10.1.0.0/16"));
  EXPECT_THAT(paths_of(rail), ElementsAre("h1.eth0-h2.eth0", "h1.eth1-h2.eth1"));
}

TEST(NamedTopologies, FatTreeHasThreeTiers) {
  for (const std::size_t k : {2u, 4u, 8u, 16u}) {
    const Graph tree = named("fat-tree:" + std::to_string(k));
    EXPECT_EQ(tree.hosts.size(), k * k * k / 4);
    EXPECT_EQ(tree.switches.size(), 5 * k * k / 4);
    EXPECT_EQ(tree.links.size(), 3 * k * k * k / 4);
    for (const Switch& node : tree.switches) EXPECT_EQ(node.interfaces.size(), k) << node.name;
    std::set<Subnet> subnets;
    for (const Link& link : tree.links) subnets.insert(link.subnet);
    EXPECT_EQ(subnets.size(), tree.links.size());
  }
  const Graph tree = named("fat-tree:4");
  EXPECT_EQ(tree.paths().size(), 16u * 15u / 2);
  EXPECT_EQ(tree.switches.front().name, "edge1");
  EXPECT_EQ(tree.switches.back().name, "core4");
}

TEST(NamedTopologies, LeafSpineConnectsEachLeafToEachSpine) {
  EXPECT_THAT(links_of(named("leaf-spine:2,2,1")),
              ElementsAre("h1-leaf1 10.0.0.0/30", "h2-leaf2 10.0.0.4/30", "leaf1-spine1 10.0.0.8/30",
                          "leaf1-spine2 10.0.0.12/30", "leaf2-spine1 10.0.0.16/30", "leaf2-spine2 10.0.0.20/30"));
}

TEST(NamedTopologies, AcceptLinkParameters) {
  const Graph graph = named("ring:3,rate=10Gbit,mtu=1500,delay=50us");
  EXPECT_EQ(graph.name, "ring:3,rate=10Gbit,mtu=1500,delay=50us");
  for (const Link& link : graph.links) {
    EXPECT_EQ(link.rate_bits_per_second, 10'000'000'000u);
    EXPECT_EQ(link.mtu_bytes, 1500);
    EXPECT_EQ(link.delay_us, 50u);
    EXPECT_EQ(graph.interface(link.ends[1]).mtu_bytes, 1500);
  }
  EXPECT_EQ(named("triangle:mtu=1500").links[0].mtu_bytes, 1500);
}

TEST(NamedTopologies, AreListedForAnUnknownName) {
  EXPECT_EQ(
      message_of("square"),
      "no topology \"square\": expected pair, triangle, mesh:N, ring:N, line:N, star:N, fat-tree:K, leaf-spine:L,S,H, "
      "rail:R,H, or a file that ends in .yaml");
  EXPECT_EQ(message_of("").substr(0, 15), "no topology \"\":");
}

TEST(NamedTopologies, ExplainAnInvalidSpecification) {
  EXPECT_EQ(message_of("ring"), "topology ring: expected ring:N, as in ring:4");
  EXPECT_EQ(message_of("ring:4,5"), "topology ring:4,5: expected ring:N, as in ring:4");
  EXPECT_EQ(message_of("leaf-spine:4,2"), "topology leaf-spine:4,2: expected leaf-spine:L,S,H, as in leaf-spine:4,2,4");
  EXPECT_EQ(message_of("triangle:3"), "topology triangle:3: expected triangle, as in triangle");
  EXPECT_EQ(message_of("ring:x"), "topology ring:x: N \"x\": expected a whole number from 3 to 1024");
  EXPECT_EQ(message_of("ring:2"), "topology ring:2: N \"2\": expected a whole number from 3 to 1024");
  EXPECT_EQ(message_of("fat-tree:3"), "topology fat-tree:3: K \"3\": expected an even number");
  EXPECT_EQ(message_of("pair:loss=1%"), "topology pair:loss=1%: loss is a fault, not a topology: use --faults loss=1%");
  EXPECT_EQ(message_of("star:4,links=2"), "topology star:4,links=2: links is unknown: expected mtu, rate, delay");
  EXPECT_EQ(message_of("pair:color=red"),
            "topology pair:color=red: color is unknown: expected mtu, rate, delay, links");
  EXPECT_EQ(message_of("pair:rate=10"),
            "topology pair:rate=10: rate \"10\": expected a number and a unit, as in 10Gbit");
}

}  // namespace
}  // namespace plugfest::topology
