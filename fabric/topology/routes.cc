// Finds routes by a breadth-first search from every subnet, and then merges them.
#include "fabric/topology/routes.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

namespace plugfest::topology {
namespace {

// A node on a segment, and its interface on the segment.
struct Attachment {
  std::size_t node = 0;  // index of a host or switch
  std::size_t interface = 0;
};

// A link, or connected bridges and all their links: they share a subnet.
struct Segment {
  Subnet subnet;
  std::vector<Attachment> hosts;
  std::vector<Attachment> routers;
};

struct Segments {
  std::vector<Segment> all;
  std::vector<std::size_t> of_link;  // in the order of Graph::links
};

std::optional<std::size_t> bridge_at(const Graph& graph, const LinkEnd& end) {
  if (end.node != LinkEnd::Node::kSwitch || graph.switches[end.index].kind != SwitchKind::kBridge) return std::nullopt;
  return end.index;
}

Segments find_segments(const Graph& graph) {
  // Union-find over connected bridges: each points to a bridge of the same segment, a root to itself.
  std::vector<std::size_t> root(graph.switches.size());
  std::iota(root.begin(), root.end(), std::size_t{0});
  const auto find_root = [&](std::size_t bridge) {
    while (root[bridge] != bridge) bridge = root[bridge] = root[root[bridge]];
    return bridge;
  };
  for (const Link& link : graph.links) {
    const auto a = bridge_at(graph, link.ends[0]);
    const auto b = bridge_at(graph, link.ends[1]);
    if (a && b) root[find_root(*a)] = find_root(*b);
  }

  Segments segments;
  std::map<std::size_t, std::size_t> of_root;
  for (const Link& link : graph.links) {
    std::size_t segment = segments.all.size();
    for (const LinkEnd& end : link.ends)
      if (const auto bridge = bridge_at(graph, end))
        segment = of_root.try_emplace(find_root(*bridge), segment).first->second;
    if (segment == segments.all.size()) segments.all.push_back({link.subnet, {}, {}});
    segments.of_link.push_back(segment);
    for (const LinkEnd& end : link.ends) {
      if (bridge_at(graph, end)) continue;
      auto& side = end.node == LinkEnd::Node::kHost ? segments.all[segment].hosts : segments.all[segment].routers;
      side.push_back({end.index, end.interface});
    }
  }
  return segments;
}

// Merges neighboring destinations with the same hops: two halves of a subnet become the subnet, repeatedly.
std::vector<Route> merged(std::vector<Route> routes) {
  std::sort(routes.begin(), routes.end(), [](const Route& a, const Route& b) { return a.to < b.to; });
  std::vector<Route> result;
  for (Route& route : routes) {
    result.push_back(std::move(route));
    while (result.size() >= 2) {
      Route& first = result[result.size() - 2];
      const Route& second = result.back();
      const int length = second.to.prefix_length;
      if (first.to.prefix_length != length || length == 0 || first.hops != second.hops) break;
      const std::uint32_t last_bit = 1u << (32 - length);
      if ((first.to.network.value & last_bit) != 0 || second.to.network.value != (first.to.network.value | last_bit))
        break;
      --first.to.prefix_length;
      result.pop_back();
    }
  }
  return result;
}

// Subnets of hosts that have the same routers and so the same routes.
struct Group {
  std::vector<std::size_t> routers;
  std::vector<Route> subnets;  // merged; without hops
};

std::vector<Group> group_segments(const Segments& segments) {
  std::map<std::vector<std::size_t>, Group> groups;
  for (const Segment& segment : segments.all) {
    if (segment.hosts.empty() || segment.routers.empty()) continue;
    std::vector<std::size_t> routers;
    for (const Attachment& router : segment.routers) routers.push_back(router.node);
    std::sort(routers.begin(), routers.end());
    Group& group = groups[routers];
    group.routers = std::move(routers);
    group.subnets.push_back({segment.subnet, {}});
  }
  std::vector<Group> result;
  for (auto& [routers, group] : groups) result.push_back({group.routers, merged(std::move(group.subnets))});
  return result;
}

constexpr int kUnreached = std::numeric_limits<int>::max();

// The number of hops between each router and the routers of a group.
std::vector<int> distances_to(const Graph& graph, const Segments& segments, const Group& group) {
  std::vector<int> distance(graph.switches.size(), kUnreached);
  std::vector<std::size_t> reached = group.routers;
  for (const std::size_t router : reached) distance[router] = 0;
  for (std::size_t next = 0; next < reached.size(); ++next) {
    const std::size_t router = reached[next];
    for (const Interface& interface : graph.switches[router].interfaces) {
      for (const Attachment& neighbor : segments.all[segments.of_link[interface.link]].routers) {
        if (distance[neighbor.node] != kUnreached) continue;
        distance[neighbor.node] = distance[router] + 1;
        reached.push_back(neighbor.node);
      }
    }
  }
  return distance;
}

// The neighboring routers nearest to the group, if their distance is less than `limit`.
std::vector<Hop> nearest_hops(const Graph& graph, const Segments& segments, const std::vector<Interface>& interfaces,
                              const std::vector<int>& distance, int limit) {
  std::vector<Hop> hops;
  for (std::size_t i = 0; i < interfaces.size(); ++i) {
    for (const Attachment& router : segments.all[segments.of_link[interfaces[i].link]].routers) {
      const int here = distance[router.node];
      if (here >= limit) continue;
      if (here < limit - 1) hops.clear();
      limit = here + 1;
      hops.push_back({i, graph.switches[router.node].interfaces[router.interface].address});
    }
  }
  return hops;
}

// Among the routes that `may_be_default` accepts, replaces those with the most frequent hops by a default route.
template <typename Accepts>
void set_default(std::vector<Route>& routes, Accepts may_be_default) {
  std::map<std::vector<Hop>, std::size_t> uses;
  for (const Route& route : routes)
    if (may_be_default(route.hops)) ++uses[route.hops];
  const auto most =
      std::max_element(uses.begin(), uses.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == uses.end()) return;
  const std::vector<Hop> hops = most->first;
  std::erase_if(routes, [&](const Route& route) { return route.hops == hops; });
  routes.push_back({{{0}, 0}, hops});
}

// For each interface that leads to routers: these routers.
std::vector<std::vector<Hop>> gateways_of(const Graph& graph, const Segments& segments, const Host& host) {
  std::vector<std::vector<Hop>> gateways;
  for (std::size_t i = 0; i < host.interfaces.size(); ++i) {
    std::vector<Hop> hops;
    for (const Attachment& router : segments.all[segments.of_link[host.interfaces[i].link]].routers)
      hops.push_back({i, graph.switches[router.node].interfaces[router.interface].address});
    if (!hops.empty()) gateways.push_back(std::move(hops));
  }
  return gateways;
}

// Reduces the routes of a node with these interfaces to an equivalent shorter list.
template <typename Accepts>
std::vector<Route> shortened(std::vector<Route> all, const Graph& graph, const std::vector<Interface>& interfaces,
                             Accepts may_be_default) {
  std::vector<Route> routes = merged(std::move(all));
  for (const Interface& interface : interfaces)  // the kernel adds these
    std::erase_if(routes, [&](const Route& route) { return route.to == graph.links[interface.link].subnet; });
  set_default(routes, may_be_default);
  return routes;
}

}  // namespace

RoutingTables routing_tables(const Graph& graph) {
  const Segments segments = find_segments(graph);
  RoutingTables tables;
  tables.hosts.resize(graph.hosts.size());
  tables.switches.resize(graph.switches.size());

  // Most hosts have one router, so a default route suffices.
  std::vector<std::size_t> hosts_with_choice;
  for (std::size_t i = 0; i < graph.hosts.size(); ++i) {
    std::vector<std::vector<Hop>> gateways = gateways_of(graph, segments, graph.hosts[i]);
    if (gateways.size() == 1 && gateways[0].size() == 1) {
      tables.hosts[i].routes = {{{{0}, 0}, gateways[0]}};
    } else if (!gateways.empty()) {
      hosts_with_choice.push_back(i);
      if (gateways.size() > 1) tables.hosts[i].by_source = std::move(gateways);
    }
  }

  for (const Group& group : group_segments(segments)) {
    const std::vector<int> distance = distances_to(graph, segments, group);
    const auto add_routes = [&](RoutingTable& table, const std::vector<Interface>& interfaces, int limit) {
      const std::vector<Hop> hops = nearest_hops(graph, segments, interfaces, distance, limit);
      if (hops.empty()) return;
      for (const Route& route : group.subnets) table.routes.push_back({route.to, hops});
    };
    for (std::size_t i = 0; i < graph.switches.size(); ++i)
      if (graph.switches[i].kind == SwitchKind::kRouter && distance[i] != kUnreached)
        add_routes(tables.switches[i], graph.switches[i].interfaces, distance[i]);
    for (const std::size_t i : hosts_with_choice) add_routes(tables.hosts[i], graph.hosts[i].interfaces, kUnreached);
  }

  for (std::size_t i = 0; i < graph.switches.size(); ++i) {
    const Switch& router = graph.switches[i];
    // Only upward routes become default routes. A default route of the top tier would make packets to unknown
    // destinations loop until their TTL expires.
    const auto all_lead_up = [&](const std::vector<Hop>& hops) {
      return std::all_of(hops.begin(), hops.end(), [&](const Hop& hop) {
        const Segment& segment = segments.all[segments.of_link[router.interfaces[hop.interface].link]];
        return std::all_of(segment.routers.begin(), segment.routers.end(), [&](const Attachment& neighbor) {
          return neighbor.node == i || graph.switches[neighbor.node].tier > router.tier;
        });
      });
    };
    tables.switches[i].routes = shortened(std::move(tables.switches[i].routes), graph, router.interfaces, all_lead_up);
  }
  for (const std::size_t i : hosts_with_choice) {
    tables.hosts[i].routes = shortened(std::move(tables.hosts[i].routes), graph, graph.hosts[i].interfaces,
                                       [](const std::vector<Hop>&) { return true; });
  }
  return tables;
}

}  // namespace plugfest::topology
