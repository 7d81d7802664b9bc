// Where rules run: a fabric with a NIC on every interface, and what ranks there find in their environment.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/rules/rule_body.h"
#include "fabric/netns/fabric.h"
#include "fabric/rxe/rxe.h"
#include "fabric/topology/graph.h"
#include "harness/control/process/launcher.h"
#include "harness/control/session.h"
#include "harness/faults/injector.h"
#include "harness/faults/ranks_by_host.h"

namespace plugfest::conformance {

/// Variables for a process: a value, or nothing to remove the variable.
using Environment = std::vector<std::pair<std::string, std::optional<std::string>>>;

/// The folder lib/ beside the running program's own folder, where NIC, plugins and mutants lie.
std::string library_folder();

/// A fabric made real, or hosts that are none of its own; ready for ranks.
class Ground {
 public:
  /// A fabric, which needs what netns::Fabric needs: see enter_sandbox(). `out_of_band`: hosts also get oob0, which
  /// everybody reaches. `rxe`: the kernel's NIC instead of the one in user space; lives longer than this. Errors:
  /// std::runtime_error.
  Ground(topology::Graph graph, bool out_of_band, const rxe::Rxe* rxe = nullptr);
  /// On a fabric that another process holds, built with fabric_options().
  Ground(topology::Graph graph, bool out_of_band, netns::BuiltFabric&& built);

  /// Hosts that are addresses of this machine, without any namespace. Errors: as loopback::Layout.
  static Ground on_loopback(topology::Graph graph);

  /// What a fabric is built with so that rules can run on it: a NIC on every interface. That of user space also makes
  /// the delay of its link.
  static netns::Options fabric_options(const topology::Graph& graph, bool out_of_band, const rxe::Rxe* rxe = nullptr);

  /// The RDMA devices that the machine has. Ranks "near" and "far" run side by side on it, on two different devices
  /// where there are two. Errors: std::runtime_error when there is no device whose port is active.
  static Ground of_this_machine();

  /// Only of a fabric.
  netns::Fabric& fabric() { return *fabric_; }
  control::Launcher& launcher();
  /// Breaks and mends the network; null unless it is a fabric with the NIC in user space.
  faults::Injector* injector() { return injector_.get(); }
  /// Paths that share no rank.
  std::vector<RulePath> paths() const { return disjoint_paths_; }

  /// What programs in a host need to find its NICs: the folder of the drop-in libibverbs first in LD_LIBRARY_PATH.
  static Environment nic_environment();
  /// A plugin as ranks of this ground load it: the NIC's environment, and for NVIDIA's own transports their settings.
  /// `plugin` as the user gave it; `api` 0: the newest.
  control::Subject subject(const std::string& plugin, int api) const;

 private:
  Ground() = default;

  std::unique_ptr<netns::Fabric> fabric_;
  std::unique_ptr<control::Launcher> launcher_;
  std::unique_ptr<faults::RanksByHost> processes_;
  std::unique_ptr<faults::Injector> injector_;
  std::vector<RulePath> disjoint_paths_;
  Environment environment_;
  /// What everybody reaches everybody over, by the beginning of its name; empty: the user knows.
  std::string common_interface_;
};

}  // namespace plugfest::conformance
