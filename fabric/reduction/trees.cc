#include "fabric/reduction/trees.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace plugfest::reduction {
namespace {

using topology::Graph;
using topology::Interface;
using topology::Ipv4Address;
using topology::LinkEnd;
using topology::Subnet;
using topology::SwitchKind;

bool is_switch(const LinkEnd& end) { return end.node == LinkEnd::Node::kSwitch; }

// The end of a link at a switch's interface.
LinkEnd end_at(std::size_t index, std::size_t interface) { return {LinkEnd::Node::kSwitch, index, interface}; }

// The last address of a subnet that is not in use. Adds it to `used`. nullopt: none is free.
std::optional<Ipv4Address> take_last_free(const Subnet& subnet, std::set<Ipv4Address>& used) {
  const std::uint32_t hosts = subnet.prefix_length == 0 ? ~0u : (1u << (32 - subnet.prefix_length)) - 1;
  for (std::uint32_t part = hosts - 1; part > 0 && part < hosts; --part)
    if (const Ipv4Address address = {subnet.network.value | part}; used.insert(address).second) return address;
  return std::nullopt;
}

}  // namespace

Trees::Trees(Graph graph) : graph_(std::move(graph)), places_(graph_.switches.size()), bridges_(places_.size()) {
  std::set<Ipv4Address> used;
  for (const topology::Host& host : graph_.hosts)
    for (const Interface& interface : host.interfaces) used.insert(interface.address);
  std::vector<bool> visited(places_.size());
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (visited[i]) continue;
    bool is_mixed = false;
    const std::size_t root = root_of_set(i, visited, is_mixed);
    // A bridge has no routes, so it could not answer hosts behind a router.
    if (!is_mixed) grow(root, used);
  }
}

// The root of all switches that `first` reaches. Marks them.
std::size_t Trees::root_of_set(std::size_t first, std::vector<bool>& visited, bool& is_mixed) const {
  std::vector<std::size_t> reached = {first};
  visited[first] = true;
  std::size_t root = first;
  for (std::size_t next = 0; next < reached.size(); ++next) {
    const topology::Switch& node = graph_.switches[reached[next]];
    is_mixed = is_mixed || node.kind != graph_.switches[first].kind;
    const int best = graph_.switches[root].tier;
    if (node.tier > best || (node.tier == best && reached[next] < root)) root = reached[next];
    for (std::size_t i = 0; i < node.interfaces.size(); ++i) {
      const LinkEnd& far = graph_.opposite(end_at(reached[next], i));
      if (!is_switch(far) || visited[far.index]) continue;
      visited[far.index] = true;
      reached.push_back(far.index);
    }
  }
  return root;
}

// Adds the tree of a root, unless it has no hosts, or a bridge gets no address: a breadth-first search without the
// branches that lead to no host.
void Trees::grow(std::size_t root, std::set<Ipv4Address>& used) {
  std::vector<std::size_t> reached = {root};
  std::set<std::size_t> seen = {root};
  std::set<std::size_t> leads_to_hosts;
  for (std::size_t next = 0; next < reached.size(); ++next) {
    const std::size_t here = reached[next];
    for (std::size_t i = 0; i < graph_.switches[here].interfaces.size(); ++i) {
      const LinkEnd& far = graph_.opposite(end_at(here, i));
      if (!is_switch(far)) {
        leads_to_hosts.insert(here);
      } else if (seen.insert(far.index).second) {
        places_[far.index].up = far;
        reached.push_back(far.index);
      }
    }
  }
  for (auto i = reached.rbegin(); i != reached.rend(); ++i)
    if (const auto parent = parent_of(*i); parent && leads_to_hosts.contains(*i)) leads_to_hosts.insert(*parent);
  std::erase_if(reached, [&](std::size_t i) { return !leads_to_hosts.contains(i); });
  if (reached.empty()) return;
  std::vector<std::optional<Ipv4Address>> addresses;
  for (const std::size_t i : reached) {
    if (graph_.switches[i].kind != SwitchKind::kBridge) continue;
    addresses.push_back(take_last_free(graph_.links[graph_.switches[i].interfaces.front().link].subnet, used));
    if (!addresses.back()) return;
  }
  // Switches of a tree are of one kind.
  for (std::size_t i = 0; i < addresses.size(); ++i) bridges_[reached[i]] = addresses[i];
  for (const std::size_t i : reached) places_[i].tree = trees_.size();
  trees_.push_back({std::move(reached)});
}

std::optional<std::size_t> Trees::parent_of(std::size_t index) const {
  if (!places_[index].up) return std::nullopt;
  return graph_.opposite(*places_[index].up).index;
}

Ipv4Address Trees::address_of(const LinkEnd& end) const {
  return bridges_[end.index].value_or(graph_.interface(end).address);
}

std::optional<Interface> Trees::bridge_address(std::size_t index) const {
  if (!bridges_[index]) return std::nullopt;
  const Subnet& subnet = graph_.links[graph_.switches[index].interfaces.front().link].subnet;
  Interface interface;
  interface.name = "bridge";
  interface.address = *bridges_[index];
  interface.prefix_length = subnet.prefix_length;
  return interface;
}

std::vector<Ipv4Address> Trees::addresses(std::size_t index) const {
  if (bridges_[index]) return {*bridges_[index]};
  std::vector<Ipv4Address> addresses;
  if (!places_[index].tree) return addresses;
  for (std::size_t i = 0; i < graph_.switches[index].interfaces.size(); ++i) {
    const LinkEnd end = end_at(index, i);
    const LinkEnd& far = graph_.opposite(end);
    const bool is_used = !is_switch(far) || places_[index].up == end || places_[far.index].up == far;
    if (is_used) addresses.push_back(graph_.interface(end).address);
  }
  return addresses;
}

topology::Marks Trees::marks() const {
  topology::Marks marks;
  for (std::size_t tree = 0; tree < trees_.size(); ++tree) {
    marks.roots.insert(trees_[tree].switches.front());
    for (const std::size_t index : trees_[tree].switches) {
      marks.switches[index] = tree;
      for (std::size_t i = 0; i < graph_.switches[index].interfaces.size(); ++i) {
        const LinkEnd end = end_at(index, i);
        if (places_[index].up == end || !is_switch(graph_.opposite(end)))
          marks.links[graph_.switches[index].interfaces[i].link] = tree;
      }
    }
  }
  return marks;
}

std::size_t Trees::lowest_above(const std::set<std::size_t>& used, const std::vector<std::size_t>& leaves,
                                std::size_t root) const {
  while (std::find(leaves.begin(), leaves.end(), root) == leaves.end()) {
    std::vector<std::size_t> below;
    for (const std::size_t i : used)
      if (parent_of(i) == root) below.push_back(i);
    if (below.size() != 1) break;
    root = below.front();
  }
  return root;
}

std::optional<GroupTree> Trees::connect(std::span<const RankSocket> ranks, std::string& reason) const {
  std::map<Ipv4Address, std::pair<LinkEnd, int>> leaves;  // by host address: the switch's end of the link, its MTU
  for (const topology::Link& link : graph_.links)
    for (std::size_t end = 0; end < 2; ++end)
      if (!is_switch(link.ends[end]) && is_switch(link.ends[1 - end]))
        leaves[graph_.interface(link.ends[end]).address] = {link.ends[1 - end], link.mtu_bytes};

  GroupTree group;
  group.mtu_bytes = 65535;
  std::vector<std::size_t> leaf_of;
  std::set<std::size_t> used;
  for (const RankSocket& rank : ranks) {
    const auto leaf = leaves.find(rank.address);
    if (leaf == leaves.end() || !places_[leaf->second.first.index].tree) {
      reason = fmt::format("no aggregation tree reaches {}: use an interface that is connected to a switch",
                           rank.address.text());
      return std::nullopt;
    }
    const std::size_t index = leaf->second.first.index;
    if (!leaf_of.empty() && places_[index].tree != places_[leaf_of.front()].tree) {
      reason = fmt::format("no aggregation tree reaches both {} and {}: use interfaces on the same rail",
                           ranks.front().address.text(), rank.address.text());
      return std::nullopt;
    }
    leaf_of.push_back(index);
    for (std::optional<std::size_t> i = index; i && used.insert(*i).second;) i = parent_of(*i);
    group.mtu_bytes = std::min(group.mtu_bytes, leaf->second.second);
  }
  if (ranks.empty()) {
    reason = "no ranks";
    return std::nullopt;
  }
  group.tree = *places_[leaf_of.front()].tree;

  const std::size_t root = lowest_above(used, leaf_of, trees_[group.tree].switches.front());
  std::map<std::size_t, std::size_t> position;  // in group.nodes, of a switch
  const auto node_of = [&](std::size_t index) {
    const auto [entry, is_new] = position.try_emplace(index, group.nodes.size());
    if (is_new) {
      group.nodes.emplace_back();
      group.nodes.back().index = index;
    }
    return entry->second;
  };
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Ipv4Address local = address_of(leaves.at(ranks[rank].address).first);
    for (std::size_t here = node_of(leaf_of[rank]);;) {
      const std::size_t index = group.nodes[here].index;
      if (index == root || group.nodes[here].parent) break;
      const LinkEnd& own = *places_[index].up;
      const LinkEnd& far = graph_.opposite(own);
      const std::size_t above = node_of(far.index);
      group.nodes[here].parent = {{address_of(far), kDataPort}, address_of(own)};
      group.nodes[here].child_of_parent = group.nodes[above].children.size();
      group.nodes[above].children.push_back({{address_of(own), kDataPort}, address_of(far)});
      group.mtu_bytes = std::min(group.mtu_bytes, graph_.interface(own).mtu_bytes);
      here = above;
    }
    std::vector<Peer>& children = group.nodes[position.at(leaf_of[rank])].children;
    group.ranks.push_back({local, children.size()});
    children.push_back({ranks[rank], local});
  }
  return group;
}

}  // namespace plugfest::reduction
