// The test bed of one run: fabric, launcher, environment of the ranks, faults, and the paths on which rules run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fabric/netns/fabric.h"
#include "fabric/topology/graph.h"
#include "harness/control/launcher.h"
#include "harness/control/session.h"
#include "harness/faults/injector.h"
#include "harness/faults/ranks_by_host.h"

namespace plugfest::reduction {
class Processes;
}

namespace plugfest::bed {

/// Two ranks whose NICs reach each other, by name: "a.eth0" and "b.eth0".
struct RankPath {
  std::string near;
  std::string far;
};

/// Ranks on different hosts, and the interfaces over which they reach each other.
///
/// A rank is a process in a host's namespace and sees all interfaces of the host. One process therefore reaches several
/// peers, each over its own interface: in the triangle, rank "a" reaches "b" over "a.eth0" and "c" over "a.eth1".
struct RankGroup {
  RankGroup() = default;
  /// The two ranks of a path, 0 and 1, which have the names of their interfaces.
  explicit RankGroup(const RankPath& path);

  std::vector<std::string> ranks;
  /// interfaces[i][j]: "a.eth0", over which ranks[i] reaches ranks[j]. "": none, and for i == j.
  std::vector<std::vector<std::string>> interfaces;

  /// `count` of these ranks that all reach each other; nullopt if there are not enough.
  std::optional<RankGroup> complete(std::size_t count) const;
};

/// Parses "a.eth0,c.eth0". Errors: std::runtime_error unless these are interfaces of two hosts of `graph`.
RankPath parse_path(const std::string& text, const topology::Graph& graph);

/// Returns one rank for each host, with the host's name. If several paths connect two hosts, `interfaces` has the first
/// one of the graph. These ranks are separate from the ranks of paths.
RankGroup ranks_of_hosts(const topology::Graph& graph);

/// Returns paths of `graph` that share no rank: in graph order, each path whose ranks are still unused.
std::vector<RankPath> disjoint_paths(const topology::Graph& graph);

/// Returns the folder lib/ beside the running program's own folder. It holds the NIC, the plugins and the mutants.
/// Errors: std::filesystem::filesystem_error if /proc is not mounted.
std::string library_folder();

/// Makes the dynamic loader search the folder `name` of library_folder() before LD_LIBRARY_PATH of
/// `environment`, or of this process if `environment` has none. Errors: std::runtime_error if the variable cannot
/// express the path.
void search_first_in(const std::string& name, control::Environment& environment);

/// The parts of a test bed that a NIC kind supplies.
struct TestBedParts {
  /// Null if hosts are not namespaces.
  std::unique_ptr<netns::Fabric> fabric;
  /// Null: ranks run in the hosts of `fabric`.
  std::unique_ptr<control::Launcher> launcher;
  /// The topology of the hosts. Empty for hosts without a topology, which need `paths`.
  topology::Graph graph;
  /// Paths that share no rank; at least one. Empty: the disjoint_paths() of `graph`.
  std::vector<RankPath> paths;
  /// Variables that a rank needs to find the NIC.
  control::Environment environment;
  /// Prefix of the interfaces over which all hosts reach each other, for NCCL_SOCKET_IFNAME. Empty: the variable keeps
  /// the user's value.
  std::string common_interface;
  /// Whether an Injector can inject faults. Requires `fabric`, with the user-space NIC.
  bool supports_faults = false;
};

/// All that ranks of one run need. NicKind::build() creates it. Thread safety: the same as the returned objects'.
class TestBed {
 public:
  explicit TestBed(TestBedParts parts);

  /// Whether hosts are namespaces.
  bool has_fabric() const { return parts_.fabric != nullptr; }
  /// Requires has_fabric().
  netns::Fabric& fabric() { return *parts_.fabric; }
  control::Launcher& launcher();
  /// Null if faults cannot be injected.
  faults::Injector* injector() { return injector_.get(); }
  /// Empty for hosts without a topology.
  const topology::Graph& graph() const { return parts_.graph; }
  /// Lets the switches reduce until the end of this object, and the ranks of subjects from now on find the reduction.
  /// Requires has_fabric(). Errors: std::runtime_error, including if no switch can reduce.
  void start_reduction();
  /// Lets ranks find the reduction of a background fabric, which runs already.
  void use_reduction();
  const std::vector<RankPath>& paths() const { return parts_.paths; }
  void set_path(RankPath path) { parts_.paths = {std::move(path)}; }
  /// One rank for each host of the topology; none without a topology.
  const RankGroup& hosts() const { return hosts_; }
  /// The interfaces on which ranks run, in paths() and hosts().
  std::set<std::string> interfaces() const;

  /// Returns how ranks of this test bed load a plugin: with the NIC's environment, and for NVIDIA's own transports with
  /// the NCCL_ variables that they need in these hosts. `plugin`: the text that the user gave. `api` 0: the newest
  /// version.
  control::Subject subject(const std::string& plugin, int api,
                           plugin::InterfaceKind interface = plugin::InterfaceKind::kNet) const;

 private:
  TestBedParts parts_;
  std::shared_ptr<reduction::Processes> reduction_;
  RankGroup hosts_;
  std::unique_ptr<faults::RanksByHost> ranks_by_host_;
  std::unique_ptr<faults::Injector> injector_;
};

/// The libibverbs that an initialized plugin has mapped.
struct VerbsLibrary {
  std::string path;  ///< empty if none is mapped
  bool is_nic = false;
};

/// Sets NCCL_IB_TIMEOUT to 14 in `environment`, for rules about lost peers: IB transports, which read it, then report
/// a lost peer after 2 s. Their default is 34 s or more. Does nothing if this process has the variable.
void report_lost_peers_soon(control::Environment& environment);

/// Returns the libibverbs of a rank of the first path after the plugin's init. Errors: as Lease::rank().
VerbsLibrary verbs_library(control::Session& session, const TestBed& bed);

/// Returns the number of RoCE packets that the user-space NICs of all hosts of `bed` have sent so far; 0 if hosts are
/// not namespaces.
std::uint64_t sent_packets(TestBed& bed);

/// Makes the user-space NICs of all interfaces() of `bed` capture to `file`; "" ends the capture. Requires
/// has_fabric(). Errors: std::runtime_error.
void capture_packets(TestBed& bed, const std::filesystem::path& file);

}  // namespace plugfest::bed
