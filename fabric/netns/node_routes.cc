#include "fabric/netns/node_routes.h"

#include <fmt/format.h>

#include <vector>

#include "fabric/netns/kernel/readiness.h"
#include "fabric/netns/kernel/requests.h"

namespace plugfest::netns {
namespace {

constexpr int kFirstLinkIndex = 1000;
constexpr std::uint32_t kFirstSourceTable = 1000;

using Hops = std::vector<topology::Hop>;

}  // namespace

int link_index(std::size_t interface) { return kFirstLinkIndex + static_cast<int>(interface); }

std::uint32_t source_table(std::size_t interface) { return kFirstSourceTable + static_cast<std::uint32_t>(interface); }

void add_routes(Netlink& netlink, const std::string& node, const topology::RoutingTable& table,
                const std::function<bool(const topology::Hop&)>& usable) {
  const auto add = [&](const topology::Subnet& to, const Hops& hops, std::uint32_t number, const std::string& purpose) {
    std::vector<NextHop> next_hops;
    for (const topology::Hop& hop : hops) {
      if (usable(hop)) next_hops.push_back({link_index(hop.interface), hop.gateway});
    }
    if (!next_hops.empty()) netlink.add(route_request(to, next_hops, number, purpose));
  };
  for (const topology::Route& route : table.routes) {
    add(route.to, route.hops, kMainTable, fmt::format("{}: route to {}", node, route.to.text()));
  }
  for (const Hops& hops : table.by_source) {
    const std::uint32_t number = source_table(hops[0].interface);
    add({}, hops, number, fmt::format("{}: route table {}", node, number));
  }
}

void restore_routes(const topology::Graph& graph, std::string_view node) {
  const topology::RoutingTables tables = topology::routing_tables(graph);
  const topology::RoutingTable* table = nullptr;
  const std::vector<topology::Interface>* interfaces = nullptr;
  for (std::size_t i = 0; i < graph.hosts.size(); ++i) {
    if (graph.hosts[i].name == node) table = &tables.hosts[i], interfaces = &graph.hosts[i].interfaces;
  }
  for (std::size_t i = 0; i < graph.switches.size(); ++i) {
    if (graph.switches[i].name == node) table = &tables.switches[i], interfaces = &graph.switches[i].interfaces;
  }
  if (table == nullptr) return;
  // The kernel refuses a route over an interface that is down.
  const auto is_up = [&](const topology::Hop& hop) { return is_interface_up((*interfaces)[hop.interface].name); };
  Netlink netlink;
  add_routes(netlink, std::string(node), *table, is_up);
  netlink.flush();
}

}  // namespace plugfest::netns
