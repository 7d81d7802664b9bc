#include "fabric/topology/generators.h"

#include <fmt/format.h>

#include <vector>

namespace plugfest::topology {
namespace {

// The next /30 of 10.0.0.0/8.
Subnet next_subnet(const Graph& graph) {
  return {{(10u << 24) + 4 * static_cast<std::uint32_t>(graph.links.size())}, 30};
}

void connect_on_new_subnets(Graph& graph, Node a, Node b, int links, const LinkParameters& parameters) {
  for (int i = 0; i < links; ++i) connect(graph, a, b, next_subnet(graph), parameters);
}

std::vector<Node> add_hosts(Graph& graph, int count) {
  std::vector<Node> hosts;
  for (int i = 1; i <= count; ++i) hosts.push_back(add_host(graph, fmt::format("h{}", i)));
  return hosts;
}

std::vector<Node> add_routers(Graph& graph, const char* name, int tier, int count) {
  std::vector<Node> routers;
  for (int i = 1; i <= count; ++i) {
    routers.push_back(add_switch(graph, fmt::format("{}{}", name, i), SwitchKind::kRouter, tier));
  }
  return routers;
}

// Adds `count` hosts to a router. Calls for consecutive routers give neighbouring subnets to the hosts behind a router
// and behind the routers above it, so that one route covers them.
void attach_hosts(Graph& graph, Node router, int count, const LinkParameters& parameters) {
  for (int i = 0; i < count; ++i) {
    const Node host = add_host(graph, fmt::format("h{}", graph.hosts.size() + 1));
    connect_on_new_subnets(graph, host, router, 1, parameters);
  }
}

}  // namespace

Graph pair(int links, const LinkParameters& parameters) {
  Graph graph;
  const Node a = add_host(graph, "a");
  const Node b = add_host(graph, "b");
  connect_on_new_subnets(graph, a, b, links, parameters);
  return graph;
}

Graph triangle(int links, const LinkParameters& parameters) {
  Graph graph;
  const Node a = add_host(graph, "a");
  const Node b = add_host(graph, "b");
  const Node c = add_host(graph, "c");
  const std::pair<Node, Node> pairs[] = {{a, b}, {a, c}, {b, c}};
  for (const auto& [first, second] : pairs) {
    for (int i = 0; i < links; ++i) {
      const auto third = 100 + static_cast<std::uint32_t>(graph.links.size());
      connect(graph, first, second, {{192u << 24 | 168u << 16 | third << 8}, 24}, parameters);
    }
  }
  return graph;
}

Graph mesh(int hosts, int links, const LinkParameters& parameters) {
  Graph graph;
  const std::vector<Node> nodes = add_hosts(graph, hosts);
  for (std::size_t a = 0; a < nodes.size(); ++a) {
    for (std::size_t b = a + 1; b < nodes.size(); ++b)
      connect_on_new_subnets(graph, nodes[a], nodes[b], links, parameters);
  }
  return graph;
}

Graph line(int hosts, int links, const LinkParameters& parameters) {
  Graph graph;
  const std::vector<Node> nodes = add_hosts(graph, hosts);
  for (std::size_t i = 1; i < nodes.size(); ++i)
    connect_on_new_subnets(graph, nodes[i - 1], nodes[i], links, parameters);
  return graph;
}

Graph ring(int hosts, int links, const LinkParameters& parameters) {
  Graph graph = line(hosts, links, parameters);
  const Node first = {LinkEnd::Node::kHost, 0};
  const Node last = {LinkEnd::Node::kHost, graph.hosts.size() - 1};
  connect_on_new_subnets(graph, last, first, links, parameters);
  return graph;
}

Graph rails(int rails, int hosts, const LinkParameters& parameters) {
  Graph graph;
  std::vector<Node> bridges;
  for (int rail = 1; rail <= rails; ++rail) {
    bridges.push_back(add_switch(graph, fmt::format("rail{}", rail), SwitchKind::kBridge, 1));
  }
  for (const Node host : add_hosts(graph, hosts)) {
    for (const Node bridge : bridges) {
      const auto second = static_cast<std::uint32_t>(bridge.index);
      connect(graph, host, bridge, {{10u << 24 | second << 16}, 16}, parameters);
    }
  }
  return graph;
}

Graph star(int hosts, const LinkParameters& parameters) {
  Graph graph = rails(1, hosts, parameters);
  graph.switches[0].name = "s1";
  return graph;
}

Graph fat_tree(int k, const LinkParameters& parameters) {
  Graph graph;
  const int half = k / 2;
  std::vector<Node> edges = add_routers(graph, "edge", 1, k * half);
  std::vector<Node> aggregations = add_routers(graph, "agg", 2, k * half);
  std::vector<Node> cores = add_routers(graph, "core", 3, half * half);
  for (const Node edge : edges) attach_hosts(graph, edge, half, parameters);
  const auto at = [](const std::vector<Node>& nodes, int index) { return nodes[static_cast<std::size_t>(index)]; };
  for (int pod = 0; pod < k; ++pod) {
    for (int i = 0; i < half; ++i) {
      const Node aggregation = at(aggregations, pod * half + i);
      for (int j = 0; j < half; ++j) {
        connect_on_new_subnets(graph, at(edges, pod * half + j), aggregation, 1, parameters);
        connect_on_new_subnets(graph, aggregation, at(cores, i * half + j), 1, parameters);
      }
    }
  }
  return graph;
}

Graph leaf_spine(int leaves, int spines, int hosts, const LinkParameters& parameters) {
  Graph graph;
  const std::vector<Node> leaf_nodes = add_routers(graph, "leaf", 1, leaves);
  const std::vector<Node> spine_nodes = add_routers(graph, "spine", 2, spines);
  for (const Node leaf : leaf_nodes) attach_hosts(graph, leaf, hosts, parameters);
  for (const Node leaf : leaf_nodes) {
    for (const Node spine : spine_nodes) connect_on_new_subnets(graph, leaf, spine, 1, parameters);
  }
  return graph;
}

}  // namespace plugfest::topology
