// Generates the named topologies.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <vector>

#include "fabric/system/text.h"
#include "fabric/topology/builder.h"
#include "fabric/topology/file.h"
#include "fabric/topology/graph.h"
#include "fabric/topology/quantity.h"

namespace plugfest::topology {
namespace {

using Numbers = std::span<const int>;
using Parameters = const LinkParameters&;

// The next /30 of 10.0.0.0/8.
Subnet next_subnet(const Graph& graph) {
  return {{(10u << 24) + 4 * static_cast<std::uint32_t>(graph.links.size())}, 30};
}

void connect_on_new_subnets(Graph& graph, Node a, Node b, int links, Parameters parameters) {
  for (int i = 0; i < links; ++i) connect(graph, a, b, next_subnet(graph), parameters);
}

std::vector<Node> add_hosts(Graph& graph, int count) {
  std::vector<Node> hosts;
  for (int i = 1; i <= count; ++i) hosts.push_back(add_host(graph, fmt::format("h{}", i)));
  return hosts;
}

std::vector<Node> add_routers(Graph& graph, const char* name, int tier, int count) {
  std::vector<Node> routers;
  for (int i = 1; i <= count; ++i)
    routers.push_back(add_switch(graph, fmt::format("{}{}", name, i), SwitchKind::kRouter, tier));
  return routers;
}

// Adds `count` hosts to a router. Calls for consecutive routers give neighboring subnets to the hosts behind a router
// and behind the routers above it, so that one route covers them.
void attach_hosts(Graph& graph, Node router, int count, Parameters parameters) {
  for (int i = 0; i < count; ++i) {
    const Node host = add_host(graph, fmt::format("h{}", graph.hosts.size() + 1));
    connect_on_new_subnets(graph, host, router, 1, parameters);
  }
}

// Each function below makes one topology. Hosts are named h1, h2, …; in pair and triangle a, b, c. `numbers`: the
// numbers of the specification, in its order. `links`: the number of parallel links between neighbors. Unless
// documented otherwise, the links get consecutive /30 subnets of 10.0.0.0/8.

Graph pair(Numbers, int links, Parameters parameters) {
  Graph graph;
  const Node a = add_host(graph, "a");
  const Node b = add_host(graph, "b");
  connect_on_new_subnets(graph, a, b, links, parameters);
  return graph;
}

// Three hosts with a link between each pair. Links get consecutive /24 subnets: a-b 192.168.100.0, a-c 192.168.101.0,
// b-c 192.168.102.0. The first host of a pair has .1, the second .2. No address of a host reaches both other hosts.
Graph triangle(Numbers, int links, Parameters parameters) {
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

// A link between each pair of hosts.
Graph mesh(Numbers numbers, int links, Parameters parameters) {
  Graph graph;
  const std::vector<Node> nodes = add_hosts(graph, numbers[0]);
  for (std::size_t a = 0; a < nodes.size(); ++a)
    for (std::size_t b = a + 1; b < nodes.size(); ++b)
      connect_on_new_subnets(graph, nodes[a], nodes[b], links, parameters);
  return graph;
}

// Each host is connected to the next. Hosts do not forward packets.
Graph line(Numbers numbers, int links, Parameters parameters) {
  Graph graph;
  const std::vector<Node> nodes = add_hosts(graph, numbers[0]);
  for (std::size_t i = 1; i < nodes.size(); ++i)
    connect_on_new_subnets(graph, nodes[i - 1], nodes[i], links, parameters);
  return graph;
}

// A line() with a further link between the last and the first host.
Graph ring(Numbers numbers, int links, Parameters parameters) {
  Graph graph = line(numbers, links, parameters);
  const Node first = {LinkEnd::Node::kHost, 0};
  const Node last = {LinkEnd::Node::kHost, graph.hosts.size() - 1};
  connect_on_new_subnets(graph, last, first, links, parameters);
  return graph;
}

// Each host has one interface on each bridge: eth0 on rail1, eth1 on rail2, … Rail r has subnet 10.(r-1).0.0/16.
Graph rails(Numbers numbers, int, Parameters parameters) {
  Graph graph;
  std::vector<Node> bridges;
  for (int rail = 1; rail <= numbers[0]; ++rail)
    bridges.push_back(add_switch(graph, fmt::format("rail{}", rail), SwitchKind::kBridge, 1));
  for (const Node host : add_hosts(graph, numbers[1])) {
    for (const Node bridge : bridges) {
      const auto second = static_cast<std::uint32_t>(bridge.index);
      connect(graph, host, bridge, {{10u << 24 | second << 16}, 16}, parameters);
    }
  }
  return graph;
}

// One bridge, s1, to which all hosts are connected.
Graph star(Numbers numbers, int, Parameters parameters) {
  const int one_rail[] = {1, numbers[0]};
  Graph graph = rails(one_rail, 1, parameters);
  graph.switches[0].name = "s1";
  return graph;
}

// Three tiers of routers with k ports each: k pods of k/2 edge and k/2 aggregation switches, (k/2)² core switches, k/2
// hosts on an edge switch. Source: Al-Fares, Loukissas, Vahdat, "A Scalable, Commodity Data Center Network
// Architecture", 2008.
Graph fat_tree(Numbers numbers, int, Parameters parameters) {
  Graph graph;
  const int k = numbers[0];
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

// Two tiers of routers: each leaf is connected to each spine and to the same number of hosts.
Graph leaf_spine(Numbers numbers, int, Parameters parameters) {
  Graph graph;
  const std::vector<Node> leaf_nodes = add_routers(graph, "leaf", 1, numbers[0]);
  const std::vector<Node> spine_nodes = add_routers(graph, "spine", 2, numbers[1]);
  for (const Node leaf : leaf_nodes) attach_hosts(graph, leaf, numbers[2], parameters);
  for (const Node leaf : leaf_nodes)
    for (const Node spine : spine_nodes) connect_on_new_subnets(graph, leaf, spine, 1, parameters);
  return graph;
}

struct Number {
  const char* name;
  int least;
  int most;
};

struct Shape {
  const char* name;
  std::vector<Number> numbers;
  const char* example;  // a complete specification
  bool parallel_links;  // whether links= is allowed
  Graph (*make)(Numbers numbers, int links, Parameters parameters);
};

// The limits leave a subnet for each link, and one or two processes per host on a large machine.
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {"pair", {}, "pair", true, pair},
      {"triangle", {}, "triangle", true, triangle},
      {"mesh", {{"N", 2, 64}}, "mesh:4", true, mesh},
      {"ring", {{"N", 3, 1024}}, "ring:4", true, ring},
      {"line", {{"N", 2, 1024}}, "line:4", true, line},
      {"star", {{"N", 1, 1000}}, "star:4", false, star},
      {"fat-tree", {{"K", 2, 32}}, "fat-tree:4", false, fat_tree},
      {"leaf-spine", {{"L", 1, 64}, {"S", 1, 64}, {"H", 1, 64}}, "leaf-spine:4,2,4", false, leaf_spine},
      {"rail", {{"R", 1, 16}, {"H", 2, 1000}}, "rail:2,4", false, rails},
  };
  return all;
}

// "leaf-spine:L,S,H"
std::string form(const Shape& shape) {
  std::string text = shape.name;
  for (std::size_t i = 0; i < shape.numbers.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? ":" : ",", shape.numbers[i].name);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// The link parameters of a specification: mtu=, rate=, delay=, links=.
struct Settings {
  LinkParameters parameters;
  int links = 1;

  void set(std::string_view key, std::string_view value, bool parallel_links) {
    constexpr int kMaxParallelLinks = 16;
    if (key == "mtu")
      parameters.mtu_bytes = parse_mtu(value);
    else if (key == "rate")
      parameters.rate_bits_per_second = parse_rate(value);
    else if (key == "delay")
      parameters.delay_us = parse_delay(value);
    else if (key == "links" && parallel_links)
      links = parse_count(value, 1, kMaxParallelLinks);
    else if (key == "loss" || key == "drop")
      throw std::runtime_error("is a fault, not a topology: use --faults loss=1%");
    else
      throw std::runtime_error(fmt::format("is unknown: expected mtu, rate, delay{}", parallel_links ? ", links" : ""));
  }
};

Graph make(const Shape& shape, std::string_view items) {
  const std::string expected = fmt::format("expected {}, as in {}", form(shape), shape.example);
  std::vector<int> numbers;
  Settings settings;
  bool has_settings = false;
  for (const std::string_view item : items.empty() ? std::vector<std::string_view>() : split(items, ',')) {
    const std::size_t equals = item.find('=');
    if (equals != std::string_view::npos) {
      has_settings = true;
      const std::string_view key = item.substr(0, equals);
      try {
        settings.set(key, item.substr(equals + 1), shape.parallel_links);
      } catch (const std::runtime_error& error) {
        throw std::runtime_error(fmt::format("{} {}", key, error.what()));
      }
      continue;
    }
    if (has_settings || numbers.size() == shape.numbers.size()) throw std::runtime_error(expected);
    const Number& number = shape.numbers[numbers.size()];
    try {
      numbers.push_back(parse_count(item, number.least, number.most));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{} {}", number.name, error.what()));
    }
  }
  if (numbers.size() != shape.numbers.size()) throw std::runtime_error(expected);
  if (std::string_view(shape.name) == "fat-tree" && numbers[0] % 2 != 0)
    throw std::runtime_error(fmt::format("K \"{}\": expected an even number", numbers[0]));
  return shape.make(numbers, settings.links, settings.parameters);
}

auto find_shape(std::string_view name) {
  return std::find_if(shapes().begin(), shapes().end(), [&](const Shape& shape) { return name == shape.name; });
}

}  // namespace

std::string nearest_name(std::string_view word) {
  std::vector<std::string> names;
  for (const Shape& shape : shapes()) names.emplace_back(shape.name);
  return nearest(word, names, word.size() / 4);
}

Graph named(std::string_view specification) {
  if (is_yaml_file(specification)) return read_topology(specification);
  const std::size_t colon = specification.find(':');
  const std::string_view name = specification.substr(0, colon);
  const auto shape = find_shape(name);
  if (shape == shapes().end()) {
    if (const auto meant = find_shape(nearest_name(name)); meant != shapes().end())
      throw std::runtime_error(fmt::format("no topology \"{}\": did you mean {}?", name, form(*meant)));
    std::string known;
    for (const Shape& known_shape : shapes()) known += form(known_shape) + ", ";
    throw std::runtime_error(fmt::format("no topology \"{}\": expected {}or a file that ends in .yaml", name, known));
  }
  const std::string_view items = colon == std::string_view::npos ? std::string_view() : specification.substr(colon + 1);
  try {
    Graph graph = make(*shape, items);
    graph.name = specification;
    return graph;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("topology {}: {}", specification, error.what()));
  }
}

}  // namespace plugfest::topology
