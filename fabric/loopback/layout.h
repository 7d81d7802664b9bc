// Addresses of this machine for the hosts of a graph.
#pragma once

#include <string>
#include <string_view>

#include "fabric/system/descriptor.h"
#include "fabric/topology/graph.h"

namespace plugfest::loopback {

/// Hosts of a graph on addresses of the machine itself, which no other run on it uses at the same time.
class Layout {
 public:
  /// `graph`: without routers, at most 256 subnets of at most 254 hosts each. Errors: std::runtime_error that says
  /// which of these it is, or that 127.0.0.0/8 is taken
  /// or down.
  explicit Layout(topology::Graph graph);

  /// With 127.x.y.z for every address.
  const topology::Graph& graph() const { return graph_; }
  /// Value of kVariable for processes of a host. Errors: std::runtime_error if there is no such host.
  std::string interfaces_of(std::string_view host) const;

 private:
  topology::Graph graph_;
  Descriptor claim_;  ///< a socket: as long as it is bound, others keep off this x
};

}  // namespace plugfest::loopback
