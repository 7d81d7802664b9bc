// The kernel's Soft-RoCE as the NIC of a fabric's hosts.
#pragma once

#include <memory>
#include <string>

#include "fabric/netns/sandbox/exit_cleanup.h"
#include "fabric/topology/graph.h"

namespace plugfest::rxe {

/// Where hosts can lie so that their devices work. Before Linux 7.1 rxe listens in the machine's first network
/// namespace alone: then all interfaces lie there, see netns::Options::flat.
enum class Layout { kNamespaces, kFlat };

/// What a user reads of it: "hosts in namespaces", "all hosts in one namespace".
std::string describe(Layout layout);

/// Rxe made ready on this machine for as long as the object.
class Rxe {
 public:
  /// `may_change_host`: load the module rdma_rxe if it is not there, and unload it afterwards. The netns mode of the
  /// machine's RDMA devices is never changed. Finds out the layout by trying. To be called while the process has one
  /// thread. Errors: std::runtime_error, one line: not root, no module, no verbs driver.
  explicit Rxe(bool may_change_host);

  Layout layout() const { return layout_; }

  /// For netns::Options::prepare_host: makes the host's devices, "a_eth0" on eth0 of host a, and has its processes see
  /// these alone. Each device goes with its interface.
  void prepare_host(const topology::Host& host) const;

 private:
  std::unique_ptr<netns::ExitCleanup> unload_;
  Layout layout_ = Layout::kFlat;
};

}  // namespace plugfest::rxe
