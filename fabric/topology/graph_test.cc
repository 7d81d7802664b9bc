#include <gmock/gmock.h>

#include "fabric/system/testing.h"
#include "fabric/topology/builder.h"
#include "fabric/topology/graph.h"
#include "fabric/topology/routes.h"

namespace plugfest::topology {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

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

// "10.0.0.0/29 eth2 eth3"
std::vector<std::string> texts(const std::vector<Interface>& interfaces, const RoutingTable& table) {
  std::vector<std::string> lines;
  for (const Route& route : table.routes) {
    std::string line = route.to.text();
    for (const Hop& hop : route.hops) line += " " + interfaces[hop.interface].name;
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> switch_routes(const Graph& graph, const std::string& name) {
  const RoutingTables tables = routing_tables(graph);
  for (std::size_t i = 0; i < graph.switches.size(); ++i)
    if (graph.switches[i].name == name) return texts(graph.switches[i].interfaces, tables.switches[i]);
  return {"no such switch"};
}

std::vector<std::string> host_routes(const Graph& graph, const std::string& name) {
  const std::size_t index = graph.host_index(name);
  return texts(graph.hosts[index].interfaces, routing_tables(graph).hosts[index]);
}

TEST(RoutingTables, AreEmptyWithoutRouters) {
  for (const char* specification : {"triangle", "star:4", "rail:2,4"}) {
    const Graph graph = named(specification);
    for (const RoutingTable& table : routing_tables(graph).hosts) EXPECT_THAT(table.routes, IsEmpty()) << specification;
  }
}

TEST(RoutingTables, HaveADefaultRouteForAHostOfATree) {
  const Graph tree = named("fat-tree:4");
  EXPECT_THAT(host_routes(tree, "h7"), ElementsAre("0.0.0.0/0 eth0"));
  EXPECT_THAT(routing_tables(tree).hosts[6].by_source, IsEmpty());
  const Host& host = tree.host("h7");
  EXPECT_EQ(routing_tables(tree).hosts[6].routes[0].hops[0].gateway.text(),
            (Ipv4Address{host.interfaces[0].address.value + 1}).text());
}

TEST(RoutingTables, UseAllUpwardRoutesAndOneDownwardRoute) {
  const Graph tree = named("fat-tree:4");
  EXPECT_THAT(switch_routes(tree, "edge1"), ElementsAre("0.0.0.0/0 eth2 eth3"));
  EXPECT_THAT(switch_routes(tree, "agg1"), ElementsAre("10.0.0.0/29 eth0", "10.0.0.8/29 eth2", "0.0.0.0/0 eth1 eth3"));
  EXPECT_THAT(switch_routes(tree, "core4"),
              ElementsAre("10.0.0.0/28 eth0", "10.0.0.16/28 eth1", "10.0.0.32/28 eth2", "10.0.0.48/28 eth3"));
}

TEST(RoutingTables, StayShortInALargeTree) {
  const RoutingTables tables = routing_tables(named("fat-tree:16"));
  std::size_t most = 0;
  for (const RoutingTable& table : tables.switches) most = std::max(most, table.routes.size());
  EXPECT_EQ(most, 16u);
}

TEST(RoutingTables, UseAllSpinesOnALeaf) {
  const Graph graph = named("leaf-spine:3,2,3");
  EXPECT_THAT(switch_routes(graph, "leaf2"), ElementsAre("0.0.0.0/0 eth3 eth4"));
  EXPECT_THAT(switch_routes(graph, "spine1"),
              ElementsAre("10.0.0.0/29 eth0", "10.0.0.8/30 eth0", "10.0.0.12/30 eth1", "10.0.0.16/29 eth1",
                          "10.0.0.24/29 eth2", "10.0.0.32/30 eth2"));
}

TEST(RoutingTables, UseTheShorterRoute) {
  // a - r1 - r2 - b, and r1 - r3 - r2.
  Graph graph;
  const Node a = add_host(graph, "a");
  const Node b = add_host(graph, "b");
  const Node r1 = add_switch(graph, "r1", SwitchKind::kRouter, 1);
  const Node r2 = add_switch(graph, "r2", SwitchKind::kRouter, 1);
  const Node r3 = add_switch(graph, "r3", SwitchKind::kRouter, 1);
  std::uint32_t next = 10u << 24;
  const auto link = [&](Node from, Node to) { connect(graph, from, to, {{next += 4}, 30}, {}); };
  link(a, r1);
  link(r1, r3);
  link(r3, r2);
  link(r1, r2);
  link(r2, b);
  EXPECT_THAT(switch_routes(graph, "r1"), ElementsAre("10.0.0.20/30 eth2"));
  EXPECT_THAT(switch_routes(graph, "r3"), ElementsAre("10.0.0.4/30 eth0", "10.0.0.20/30 eth1"));
}

TEST(RoutingTables, CoverASubnetBehindABridge) {
  // a and b on a bridge with router r1; c behind r2.
  Graph graph;
  const Node a = add_host(graph, "a");
  const Node b = add_host(graph, "b");
  const Node c = add_host(graph, "c");
  const Node bridge = add_switch(graph, "s1", SwitchKind::kBridge, 1);
  const Node r1 = add_switch(graph, "r1", SwitchKind::kRouter, 2);
  const Node r2 = add_switch(graph, "r2", SwitchKind::kRouter, 2);
  const Subnet shared = {{10u << 24}, 24};
  connect(graph, a, bridge, shared, {});
  connect(graph, b, bridge, shared, {});
  connect(graph, r1, bridge, shared, {});
  connect(graph, r1, r2, {{(10u << 24) + 256}, 30}, {});
  connect(graph, c, r2, {{(10u << 24) + 512}, 30}, {});
  EXPECT_EQ(graph.interface(LinkEnd{LinkEnd::Node::kSwitch, 1, 0}).address.text(), "10.0.0.3");
  EXPECT_THAT(host_routes(graph, "a"), ElementsAre("0.0.0.0/0 eth0"));
  EXPECT_THAT(switch_routes(graph, "r2"), ElementsAre("10.0.0.0/24 eth0"));
  EXPECT_THAT(switch_routes(graph, "r1"), ElementsAre("10.0.2.0/30 eth1"));
  EXPECT_EQ(graph.paths().size(), 3u);
}

TEST(RoutingTables, RouteBySourceForAHostWithTwoRouters) {
  Graph graph;
  const Node a = add_host(graph, "a");
  const Node b = add_host(graph, "b");
  const Node r1 = add_switch(graph, "r1", SwitchKind::kRouter, 1);
  const Node r2 = add_switch(graph, "r2", SwitchKind::kRouter, 1);
  std::uint32_t next = 10u << 24;
  for (const Node host : {a, b})
    for (const Node router : {r1, r2}) connect(graph, host, router, {{next += 4}, 30}, {});
  // b's first interface is behind r1, its second behind r2. One of the two routes becomes the default route.
  EXPECT_THAT(host_routes(graph, "a"), ElementsAre("10.0.0.16/30 eth1", "0.0.0.0/0 eth0"));
  const RoutingTable table = routing_tables(graph).hosts[0];
  ASSERT_EQ(table.by_source.size(), 2u);
  EXPECT_EQ(table.by_source[0], (std::vector<Hop>{{0, {(10u << 24) + 6}}}));
  EXPECT_EQ(table.by_source[1], (std::vector<Hop>{{1, {(10u << 24) + 10}}}));
}

}  // namespace
}  // namespace plugfest::topology
