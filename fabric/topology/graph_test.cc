// The triangle, lookups in graphs, and their error messages.
#include "fabric/topology/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "fabric/system/testing/error_message.h"

namespace plugfest::topology {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> path_names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Path& path : graph.paths())
    names.push_back(graph.interface_name(path.from) + " " + graph.interface_name(path.to));
  return names;
}

TEST(Addresses, AreWrittenInDottedForm) {
  EXPECT_EQ((Ipv4Address{0x0a000001}.text()), "10.0.0.1");
  EXPECT_EQ((Ipv4Address{0xffffffff}.text()), "255.255.255.255");
  EXPECT_EQ((Subnet{{0xc0a86400}, 24}.text()), "192.168.100.0/24");
}

TEST(Addresses, BelongToASubnetByPrefix) {
  const Subnet subnet{{0x0a000004}, 30};
  EXPECT_TRUE(subnet.contains({0x0a000007}));
  EXPECT_FALSE(subnet.contains({0x0a000008}));
  EXPECT_TRUE((Subnet{{0}, 0}.contains({0xffffffff})));
}

TEST(Triangle, HasALinkAndASubnetPerPair) {
  const Graph graph = named("triangle");
  ASSERT_EQ(graph.hosts.size(), 3u);
  ASSERT_EQ(graph.links.size(), 3u);
  EXPECT_TRUE(graph.switches.empty());
  std::vector<std::string> lines;
  for (const Link& link : graph.links) {
    std::string line = link.subnet.text();
    for (const LinkEnd& end : link.ends) {
      const Interface& interface = graph.interface(end);
      EXPECT_EQ(&graph.links[interface.link], &link);
      EXPECT_EQ(interface.prefix_length, 24);
      EXPECT_EQ(interface.mtu_bytes, 9000);
      line += " " + graph.node_name(end) + "." + interface.name + " " + interface.address.text();
    }
    lines.push_back(line);
  }
  EXPECT_THAT(lines, ElementsAre("192.168.100.0/24 a.eth0 192.168.100.1 b.eth0 192.168.100.2",
                                 "192.168.101.0/24 a.eth1 192.168.101.1 c.eth0 192.168.101.2",
                                 "192.168.102.0/24 b.eth1 192.168.102.1 c.eth1 192.168.102.2"));
}

TEST(Triangle, HasThreePaths) {
  EXPECT_THAT(path_names(named("triangle")), ElementsAre("a.eth0 b.eth0", "a.eth1 c.eth0", "b.eth1 c.eth1"));
}

TEST(Graph, ListsItsHostsForAnUnknownName) {
  const Graph graph = named("triangle");
  EXPECT_EQ(graph.host("b").name, "b");
  EXPECT_EQ(error_message([&] { graph.host("d"); }), "no host \"d\" in topology triangle: its hosts are a, b, c");
}

TEST(LinkEnds, AreFoundByNodeAndInterface) {
  const Graph graph = named("leaf-spine:2,2,2");
  for (const Link& link : graph.links)
    for (const std::size_t i : {0u, 1u}) {
      const LinkEnd* const end = graph.find_link_end(graph.node_name(link.ends[i]), graph.interface(link.ends[i]).name);
      ASSERT_EQ(end, &link.ends[i]);
      EXPECT_EQ(&graph.opposite(*end), &link.ends[1 - i]);
    }
  EXPECT_EQ(graph.find_link_end("h1", "eth7"), nullptr);
  EXPECT_EQ(graph.find_link_end("h99", "eth0"), nullptr);
}

}  // namespace
}  // namespace plugfest::topology
