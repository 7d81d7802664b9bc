#include "fabric/topology/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "fabric/system/text.h"

namespace plugfest::topology {

std::string Ipv4Address::text() const {
  return fmt::format("{}.{}.{}.{}", value >> 24, value >> 16 & 255, value >> 8 & 255, value & 255);
}

std::string Subnet::text() const { return fmt::format("{}/{}", network.text(), prefix_length); }

bool Subnet::contains(Ipv4Address address) const {
  return prefix_length == 0 || ((address.value ^ network.value) >> (32 - prefix_length)) == 0;
}

std::string Graph::size_text() const {
  return fmt::format("{}, {}, {}", counted(hosts.size(), "host"), counted(switches.size(), "switch"),
                     counted(links.size(), "link"));
}

std::size_t Graph::host_index(std::string_view wanted) const {
  const auto found = std::find_if(hosts.begin(), hosts.end(), [&](const Host& host) { return host.name == wanted; });
  if (found != hosts.end()) return static_cast<std::size_t>(found - hosts.begin());

  constexpr std::size_t kNamesShown = 8;
  std::string known;
  for (std::size_t i = 0; i < std::min(hosts.size(), kNamesShown); ++i) known += (i == 0 ? "" : ", ") + hosts[i].name;
  if (hosts.size() > kNamesShown) known += fmt::format(", … {}", hosts.back().name);
  throw std::runtime_error(fmt::format("no host \"{}\" in topology {}: its hosts are {}", wanted, name, known));
}

const Host& Graph::host(std::string_view wanted) const { return hosts[host_index(wanted)]; }

bool Graph::has_node(std::string_view wanted) const {
  const auto is_wanted = [&](const auto& node) { return node.name == wanted; };
  return std::any_of(hosts.begin(), hosts.end(), is_wanted) || std::any_of(switches.begin(), switches.end(), is_wanted);
}

const Interface& Graph::interface(const HostInterface& end) const {
  return hosts.at(end.host).interfaces.at(end.interface);
}

const Interface& Graph::interface(const LinkEnd& end) const {
  return end.node == LinkEnd::Node::kHost ? hosts.at(end.index).interfaces.at(end.interface)
                                          : switches.at(end.index).interfaces.at(end.interface);
}

const std::string& Graph::node_name(const LinkEnd& end) const {
  return end.node == LinkEnd::Node::kHost ? hosts.at(end.index).name : switches.at(end.index).name;
}

const LinkEnd* Graph::find_link_end(std::string_view node, std::string_view interface) const {
  for (const Link& link : links)
    for (const LinkEnd& end : link.ends)
      if (node_name(end) == node && this->interface(end).name == interface) return &end;
  return nullptr;
}

const LinkEnd& Graph::opposite(const LinkEnd& end) const {
  const Link& link = links.at(interface(end).link);
  return &interface(link.ends[0]) == &interface(end) ? link.ends[1] : link.ends[0];
}

std::string Graph::interface_name(const HostInterface& end) const {
  return hosts.at(end.host).name + "." + interface(end).name;
}

std::vector<Path> Graph::paths() const {
  // Union-find: each switch points to a switch of the same network, a root to itself.
  std::vector<std::size_t> root(switches.size());
  std::iota(root.begin(), root.end(), std::size_t{0});
  const auto find_root = [&](std::size_t node) {
    while (root[node] != node) node = root[node] = root[root[node]];
    return node;
  };
  for (const Link& link : links)
    if (link.ends[0].node == LinkEnd::Node::kSwitch && link.ends[1].node == LinkEnd::Node::kSwitch)
      root[find_root(link.ends[0].index)] = find_root(link.ends[1].index);

  // The host interfaces of each network. A link between hosts is a separate network.
  std::vector<std::vector<HostInterface>> on_switches(switches.size());
  std::vector<std::vector<HostInterface>> networks;
  for (const Link& link : links) {
    std::vector<HostInterface> hosts_here;
    std::size_t network = switches.size();
    for (const LinkEnd& end : link.ends)
      if (end.node == LinkEnd::Node::kHost)
        hosts_here.push_back({end.index, end.interface});
      else
        network = find_root(end.index);
    if (network == switches.size())
      networks.push_back(std::move(hosts_here));
    else
      on_switches[network].insert(on_switches[network].end(), hosts_here.begin(), hosts_here.end());
  }
  networks.insert(networks.end(), on_switches.begin(), on_switches.end());

  std::vector<Path> paths;
  for (std::vector<HostInterface>& ends : networks) {
    std::sort(ends.begin(), ends.end());
    for (std::size_t from = 0; from < ends.size(); ++from) {
      for (std::size_t to = from + 1; to < ends.size(); ++to)
        if (ends[from].host != ends[to].host) paths.push_back({ends[from], ends[to]});
    }
  }
  std::sort(paths.begin(), paths.end(),
            [](const Path& a, const Path& b) { return a.from != b.from ? a.from < b.from : a.to < b.to; });
  return paths;
}

}  // namespace plugfest::topology
