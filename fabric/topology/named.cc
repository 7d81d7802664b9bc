// The topologies that have a name.
#include <fmt/format.h>

#include <stdexcept>

#include "fabric/topology/assembly.h"
#include "fabric/topology/graph.h"

namespace plugfest::topology {
namespace {

// Three hosts, each pair with a link and a /24 of its own, so that no address of a host reaches both others:
// a-b 192.168.100.0/24, a-c 192.168.101.0/24, b-c 192.168.102.0/24; the first host of each pair has .1, the second .2.
Graph triangle() {
  Graph graph;
  const Node a = add_host(graph, "a");
  const Node b = add_host(graph, "b");
  const Node c = add_host(graph, "c");
  const auto subnet = [](std::uint32_t third) { return Subnet{{192u << 24 | 168u << 16 | third << 8}, 24}; };
  connect(graph, a, b, subnet(100), {});
  connect(graph, a, c, subnet(101), {});
  connect(graph, b, c, subnet(102), {});
  return graph;
}

}  // namespace

Graph named(std::string_view specification) {
  Graph graph;
  if (specification == "triangle") {
    graph = triangle();
  } else {
    throw std::runtime_error(fmt::format("no topology \"{}\": there is triangle", specification));
  }
  graph.name = specification;
  return graph;
}

}  // namespace plugfest::topology
