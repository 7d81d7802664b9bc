// Aggregation trees: which switches reduce, and over which links.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "fabric/topology/draw.h"
#include "fabric/topology/graph.h"

namespace plugfest::reduction {

/// The UDP port of all aggregation nodes.
inline constexpr std::uint16_t kDataPort = 4793;

/// The UDP socket of a rank.
struct RankSocket {
  topology::Ipv4Address address;
  std::uint16_t port = 0;
  auto operator<=>(const RankSocket&) const = default;
};

/// A spanning tree of switches. Its root is the first switch of the highest tier.
struct Tree {
  /// Root first; each other switch after its parent. Only switches on a path between a host and the root.
  std::vector<std::size_t> switches;
};

/// A neighbor of an aggregation node in a group: a rank, or the node of another switch.
struct Peer {
  RankSocket socket;
  topology::Ipv4Address local;  ///< the node's own address on the link to the peer
};

/// An aggregation node in a group.
struct GroupNode {
  std::size_t index = 0;  ///< in Graph::switches
  std::optional<Peer> parent;
  std::size_t child_of_parent = 0;  ///< this node's position in the parent's children
  std::vector<Peer> children;       ///< in the order of their first ranks
};

/// The node to which a rank sends.
struct RankNode {
  topology::Ipv4Address address;
  std::size_t child = 0;
};

/// The part of a tree that connects the ranks of a group.
struct GroupTree {
  std::size_t tree = 0;  ///< index in Trees::all()
  std::vector<GroupNode> nodes;
  std::vector<RankNode> ranks;
  int mtu_bytes = 0;  ///< the least of its links
};

/// The trees of a topology: one for each set of switches that are connected to each other. Sets with bridges and
/// routers have none, nor those with a bridge whose subnet has no free address. Thread safety: const functions may be
/// called from several threads.
class Trees {
 public:
  /// Keeps a copy of the graph.
  explicit Trees(topology::Graph graph);

  const topology::Graph& graph() const { return graph_; }
  const std::vector<Tree>& all() const { return trees_; }

  /// The address that a bridge has for reduction: the last free one of its hosts' subnet. nullopt: no bridge of a tree.
  std::optional<topology::Interface> bridge_address(std::size_t index) const;

  /// The addresses that the node of a switch uses.
  std::vector<topology::Ipv4Address> addresses(std::size_t index) const;

  /// The switches and links of all trees, including the links of hosts, each with the index of its tree.
  topology::Marks marks() const;

  /// The tree's links between these ranks. nullopt, and the cause in `reason`, if no tree reaches all of them.
  std::optional<GroupTree> connect(std::span<const RankSocket> ranks, std::string& reason) const;

 private:
  struct Place {
    std::optional<std::size_t> tree;
    std::optional<topology::LinkEnd> up;  // the end at the switch of the link to its parent
  };

  void grow(std::size_t root, std::set<topology::Ipv4Address>& used);
  std::size_t root_of_set(std::size_t first, std::vector<bool>& visited, bool& is_mixed) const;
  topology::Ipv4Address address_of(const topology::LinkEnd& end) const;
  /// The lowest switch of `used` above all `leaves`, at or below `root`.
  std::size_t lowest_above(const std::set<std::size_t>& used, const std::vector<std::size_t>& leaves,
                           std::size_t root) const;
  std::optional<std::size_t> parent_of(std::size_t index) const;

  topology::Graph graph_;
  std::vector<Tree> trees_;
  std::vector<Place> places_;                                  // in the order of Graph::switches
  std::vector<std::optional<topology::Ipv4Address>> bridges_;  // in the order of Graph::switches; of bridges of trees
};

}  // namespace plugfest::reduction
