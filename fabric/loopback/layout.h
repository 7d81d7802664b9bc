// Assigns addresses of 127.0.0.0/8 to the hosts of a graph.
#pragma once

#include <string>
#include <string_view>

#include "fabric/system/file.h"
#include "fabric/topology/graph.h"

namespace plugfest::loopback {

/// A graph with addresses 127.x.y.z that no other run on this machine uses at the same time.
class Layout {
 public:
  /// `graph`: without routers, at most 256 subnets of at most 254 hosts each. Errors: std::runtime_error if the graph
  /// exceeds these limits, all addresses are in use, or the loopback interface is down.
  explicit Layout(topology::Graph graph);

  /// The graph with its new addresses.
  const topology::Graph& graph() const { return graph_; }
  /// The value of kVariable for processes of a host. Errors: std::runtime_error if the host does not exist.
  std::string interfaces_of(std::string_view host) const;

 private:
  topology::Graph graph_;
  Descriptor claim_;  ///< a bound socket that reserves 127.x.0.0/16
};

}  // namespace plugfest::loopback
