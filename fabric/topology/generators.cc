#include "fabric/topology/generators.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <vector>

#include "fabric/system/text.h"
#include "fabric/topology/quantity.h"

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
  for (int i = 1; i <= count; ++i)
    routers.push_back(add_switch(graph, fmt::format("{}{}", name, i), SwitchKind::kRouter, tier));
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
  for (std::size_t a = 0; a < nodes.size(); ++a)
    for (std::size_t b = a + 1; b < nodes.size(); ++b)
      connect_on_new_subnets(graph, nodes[a], nodes[b], links, parameters);
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
  for (int rail = 1; rail <= rails; ++rail)
    bridges.push_back(add_switch(graph, fmt::format("rail{}", rail), SwitchKind::kBridge, 1));
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
  for (const Node leaf : leaf_nodes)
    for (const Node spine : spine_nodes) connect_on_new_subnets(graph, leaf, spine, 1, parameters);
  return graph;
}

namespace {

using Numbers = std::span<const int>;

struct Number {
  const char* name;
  int least;
  int most;
};

using Parameters = const LinkParameters&;

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
      {"pair", {}, "pair", true, [](Numbers, int links, Parameters p) { return pair(links, p); }},
      {"triangle", {}, "triangle", true, [](Numbers, int links, Parameters p) { return triangle(links, p); }},
      {"mesh", {{"N", 2, 64}}, "mesh:4", true, [](Numbers n, int links, Parameters p) { return mesh(n[0], links, p); }},
      {"ring",
       {{"N", 3, 1024}},
       "ring:4",
       true,
       [](Numbers n, int links, Parameters p) { return ring(n[0], links, p); }},
      {"line",
       {{"N", 2, 1024}},
       "line:4",
       true,
       [](Numbers n, int links, Parameters p) { return line(n[0], links, p); }},
      {"star", {{"N", 2, 1000}}, "star:4", false, [](Numbers n, int, Parameters p) { return star(n[0], p); }},
      {"fat-tree", {{"K", 2, 32}}, "fat-tree:4", false, [](Numbers n, int, Parameters p) { return fat_tree(n[0], p); }},
      {"leaf-spine",
       {{"L", 1, 64}, {"S", 1, 64}, {"H", 1, 64}},
       "leaf-spine:4,2,4",
       false,
       [](Numbers n, int, Parameters p) { return leaf_spine(n[0], n[1], n[2], p); }},
      {"rail",
       {{"R", 1, 16}, {"H", 2, 1000}},
       "rail:2,4",
       false,
       [](Numbers n, int, Parameters p) { return rails(n[0], n[1], p); }},
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
  return std::find_if(shapes().begin(), shapes().end(), [&](const Shape& one) { return name == one.name; });
}

}  // namespace

std::string nearest_name(std::string_view word) {
  std::vector<std::string> names;
  for (const Shape& one : shapes()) names.emplace_back(one.name);
  return nearest(word, names, word.size() / 4);
}

Graph named(std::string_view specification) {
  if (specification.ends_with(".yaml") || specification.ends_with(".yml")) return read_file(specification);
  const std::size_t colon = specification.find(':');
  const std::string_view name = specification.substr(0, colon);
  const auto shape = find_shape(name);
  if (shape == shapes().end()) {
    if (const auto meant = find_shape(nearest_name(name)); meant != shapes().end())
      throw std::runtime_error(fmt::format("no topology \"{}\": did you mean {}?", name, form(*meant)));
    std::string known;
    for (const Shape& one : shapes()) known += form(one) + ", ";
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
