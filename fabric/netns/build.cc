#include "fabric/netns/build.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <stdexcept>

#include "fabric/netns/interfaces.h"
#include "fabric/netns/namespaces.h"
#include "fabric/topology/host_names.h"

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
    for (const topology::Hop& hop : hops)
      if (usable(hop)) next_hops.push_back({link_index(hop.interface), hop.gateway});
    if (!next_hops.empty()) netlink.add(route_request(to, next_hops, number, purpose));
  };
  for (const topology::Route& route : table.routes)
    add(route.to, route.hops, kMainTable, fmt::format("{}: route to {}", node, route.to.text()));
  for (const Hops& hops : table.by_source) {
    const std::uint32_t number = source_table(hops[0].interface);
    add({}, hops, number, fmt::format("{}: route table {}", node, number));
  }
}

void restore_routes(const topology::Graph& graph, std::string_view node) {
  const topology::RoutingTables tables = topology::routing_tables(graph);
  const topology::RoutingTable* table = nullptr;
  const std::vector<topology::Interface>* interfaces = nullptr;
  for (std::size_t i = 0; i < graph.hosts.size(); ++i)
    if (graph.hosts[i].name == node) table = &tables.hosts[i], interfaces = &graph.hosts[i].interfaces;
  for (std::size_t i = 0; i < graph.switches.size(); ++i)
    if (graph.switches[i].name == node) table = &tables.switches[i], interfaces = &graph.switches[i].interfaces;
  if (table == nullptr) return;
  // The kernel refuses a route over an interface that is down.
  const auto is_up = [&](const topology::Hop& hop) { return is_interface_up((*interfaces)[hop.interface].name); };
  Netlink netlink;
  add_routes(netlink, std::string(node), *table, is_up);
  netlink.flush();
}

namespace {

using topology::Graph;
using topology::Interface;
using topology::Ipv4Address;
using topology::Link;
using topology::LinkEnd;
using topology::SwitchKind;

// Fixed interface indices, so that no request needs a lookup. Lower indices are taken by loopback and by the tunnel
// devices that some kernels add to every namespace. Links follow at link_index().
constexpr int kLoopbackIndex = 1;
constexpr int kOutOfBandIndex = 100;
constexpr int kBridgeIndex = 101;

constexpr int kOutOfBandMtuBytes = 1500;

// A RoCE NIC knows the Ethernet address of a connected peer, and sends as soon as a link is up again. The kernel sends
// an ARP request first, and by default repeats a lost one after 1 s, three times.
constexpr std::chrono::milliseconds kArpInterval(100);
constexpr std::uint32_t kArpProbes = 30;

std::string link_name(const Graph& graph, const Link& link) {
  return fmt::format("link {}-{} {}", graph.node_name(link.ends[0]), graph.node_name(link.ends[1]), link.subnet.text());
}

bool all_hops(const topology::Hop&) { return true; }

class Builder {
 public:
  Builder(const Graph& graph, const Options& options) : graph_(graph), options_(options) {}

  BuiltFabric build() {
    require_descriptors(graph_);
    built_.home_mounts = open_current_namespace("mnt");
    for (std::size_t i = 0; i < graph_.hosts.size(); ++i) built_.hosts.push_back({create_network_namespace(), {}});
    for (const topology::Switch& node : graph_.switches)
      built_.switches.push_back(
          create_network_namespace(node.kind == SwitchKind::kRouter ? Forwarding::kYes : Forwarding::kNo));
    make_links();

    const topology::RoutingTables tables = topology::routing_tables(graph_);
    for (std::size_t i = 0; i < graph_.hosts.size(); ++i) set_up_host(i, tables.hosts[i]);
    for (std::size_t i = 0; i < graph_.switches.size(); ++i) set_up_switch(i, tables.switches[i]);
    for (std::size_t i = 0; i < graph_.switches.size(); ++i) {
      enter_namespace(built_.switches[i], CLONE_NEWNET);
      for (const Interface& interface : graph_.switches[i].interfaces)
        require_carrier("switch " + graph_.switches[i].name, interface.name);
    }
    for (std::size_t i = 0; i < graph_.hosts.size(); ++i) prepare_host(i);
    return std::move(built_);
  }

 private:
  const Descriptor& network_of(const LinkEnd& end) const {
    return end.node == LinkEnd::Node::kHost ? built_.hosts[end.index].network : built_.switches[end.index];
  }

  void make_links() {
    // The kernel checks the interface index in the namespace of the request; in an empty one it is free.
    const Descriptor empty_namespace = create_network_namespace();
    Netlink netlink;
    const auto veth_end = [&](const LinkEnd& end) {
      const Interface& interface = graph_.interface(end);
      VethEnd veth = {network_of(end).get(), link_index(end.interface), interface.name};
      if (interface.address.value != 0) veth.mac = mac_of(interface.address);
      return veth;
    };
    for (const Link& link : graph_.links)
      netlink.add(
          veth_request(veth_end(link.ends[0]), veth_end(link.ends[1]), link.mtu_bytes, link_name(graph_, link)));
    if (options_.out_of_band) make_out_of_band(netlink);
    netlink.flush();
  }

  void make_out_of_band(Netlink& netlink) {
    built_.out_of_band = create_network_namespace();
    Netlink bridge;
    bridge.add(bridge_request(kBridgeIndex, "oob", kOutOfBandMtuBytes, "out-of-band bridge"));
    for (std::size_t i = 0; i < graph_.hosts.size(); ++i) {
      const VethEnd in_host = {built_.hosts[i].network.get(), kOutOfBandIndex, "oob0"};
      const VethEnd port = {built_.out_of_band.get(), link_index(i), fmt::format("port{}", i)};
      netlink.add(veth_request(in_host, port, kOutOfBandMtuBytes, fmt::format("host {}: oob0", graph_.hosts[i].name)));
    }
    netlink.flush();
    for (std::size_t i = 0; i < graph_.hosts.size(); ++i)
      bridge.add(port_request(link_index(i), kBridgeIndex, fmt::format("out-of-band bridge: port{}", i)));
    bridge.add(up_request(kBridgeIndex, true, "out-of-band bridge"));
    bridge.flush();
  }

  // Sets up the interfaces of a host or router, in whose namespace the thread is.
  void set_up_interfaces(Netlink& netlink, const std::string& node, const std::vector<Interface>& interfaces) {
    netlink.add(up_request(kLoopbackIndex, true, node + ": lo"));
    for (std::size_t i = 0; i < interfaces.size(); ++i) {
      const Interface& interface = interfaces[i];
      const Link& link = graph_.links[interface.link];
      const std::string purpose = fmt::format("{}: {}", node, interface.name);
      netlink.add(address_request(link_index(i), interface.address, interface.prefix_length, purpose));
      set_up_link_end(netlink, link_index(i), link, purpose);
      netlink.add(arp_request(link_index(i), kArpInterval, kArpProbes, purpose));
      for (const LinkEnd& end : link.ends) {
        const Interface& peer = graph_.interface(end);
        if (is_routed(link) && &peer != &interface) netlink.add(neighbor_request(link_index(i), peer.address, purpose));
      }
    }
  }

  void set_up_link_end(Netlink& netlink, int index, const Link& link, const std::string& purpose) {
    netlink.add(up_request(index, true, purpose));
    if (link.rate_bits_per_second > 0)
      netlink.add(rate_request(index, link.rate_bits_per_second, link.mtu_bytes, purpose));
  }

  // Links of routers get permanent neighbor entries. The kernel has one table of learned neighbors for all namespaces
  // of the machine, limited to about a thousand entries, which a large tree would fill.
  bool is_routed(const Link& link) const {
    bool has_router = false;
    for (const LinkEnd& end : link.ends) {
      if (end.node != LinkEnd::Node::kSwitch) continue;
      if (graph_.switches[end.index].kind == SwitchKind::kBridge) return false;
      has_router = true;
    }
    return has_router;
  }

  void set_up_host(std::size_t index, const topology::RoutingTable& table) {
    const topology::Host& host = graph_.hosts[index];
    const std::string name = "host " + host.name;
    enter_namespace(built_.hosts[index].network, CLONE_NEWNET);
    Netlink netlink;
    set_up_interfaces(netlink, name, host.interfaces);
    if (options_.out_of_band) {
      const Ipv4Address address = topology::out_of_band_address(index);
      netlink.add(address_request(kOutOfBandIndex, address, topology::kOutOfBandSubnet.prefix_length, name + ": oob0"));
      netlink.add(up_request(kOutOfBandIndex, true, name + ": oob0"));
    }
    add_routes(netlink, name, table, all_hops);
    for (const std::vector<topology::Hop>& hops : table.by_source) {
      const std::size_t interface_index = hops[0].interface;
      const Interface& interface = host.interfaces[interface_index];
      netlink.add(source_rule_request(interface.address, source_table(interface_index),
                                      fmt::format("{}: rule for {}", name, interface.name)));
    }
    netlink.flush();
  }

  void set_up_switch(std::size_t index, const topology::RoutingTable& table) {
    const topology::Switch& node = graph_.switches[index];
    const std::string name = "switch " + node.name;
    enter_namespace(built_.switches[index], CLONE_NEWNET);
    Netlink netlink;
    if (node.kind == SwitchKind::kRouter) {
      set_up_interfaces(netlink, name, node.interfaces);
      add_routes(netlink, name, table, all_hops);
    } else {
      int mtu_bytes = 65535;
      for (const Interface& port : node.interfaces) mtu_bytes = std::min(mtu_bytes, port.mtu_bytes);
      netlink.add(bridge_request(kBridgeIndex, "bridge", mtu_bytes, name));
      for (std::size_t i = 0; i < node.interfaces.size(); ++i) {
        const std::string purpose = fmt::format("{}: {}", name, node.interfaces[i].name);
        netlink.add(port_request(link_index(i), kBridgeIndex, purpose));
        set_up_link_end(netlink, link_index(i), graph_.links[node.interfaces[i].link], purpose);
      }
      netlink.add(up_request(kBridgeIndex, true, name));
    }
    netlink.flush();
  }

  void prepare_host(std::size_t index) {
    const topology::Host& host = graph_.hosts[index];
    enter_namespace(built_.hosts[index].network, CLONE_NEWNET);
    for (const Interface& interface : host.interfaces) {
      require_carrier("host " + host.name, interface.name);
      // After one timeout no further host waits, because a fabric can have a thousand hosts.
      has_link_local_ = has_link_local_ && await_link_local_address(interface.name);
    }
    try {
      enter_host_view();
      set_host_names(names_.seen_by(host));
      built_.hosts[index].mounts = open_current_namespace("mnt");
      if (options_.prepare_host) options_.prepare_host(host);
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("host {}: {}", host.name, error.what()));
    }
    enter_namespace(built_.home_mounts, CLONE_NEWNS);
  }

  const Graph& graph_;
  const Options& options_;
  BuiltFabric built_;
  const topology::HostNames names_{graph_, options_.out_of_band};
  bool has_link_local_ = true;
};

}  // namespace

void require_descriptors(const Graph& graph) {
  constexpr rlim_t kOthers = 128;
  const rlim_t needed = 2 * graph.hosts.size() + graph.switches.size() + kOthers;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  if (limit.rlim_max < needed)
    throw std::runtime_error(
        fmt::format("topology {} needs {} file descriptors and the limit is {}: run\n"
                    "    sudo prlimit --pid $$ --nofile={}\n  or use a smaller topology",
                    graph.name, needed, limit.rlim_max, needed));
  limit.rlim_cur = needed;
  setrlimit(RLIMIT_NOFILE, &limit);
}

BuiltFabric build(const Graph& graph, const Options& options) { return Builder(graph, options).build(); }

}  // namespace plugfest::netns
