// The bed of a run: NIC kind, fabric and devices that the user chose. Every command that runs plugins uses it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/live/live_fabric.h"
#include "fabric/live/state_folder.h"
#include "fabric/system/file.h"
#include "fabric/topology/graph.h"
#include "harness/bed/devices.h"
#include "harness/bed/nic_kind.h"
#include "harness/bed/test_bed.h"

namespace plugfest::bed {

/// The hosts and links of a run: built for it, or provided by a background fabric.
struct FabricChoice {
  topology::Graph graph;
  /// Set for a background fabric only.
  std::optional<live::Record> record = {};

  /// Errors: as topology::named().
  static FabricChoice built(const std::string& topology);
  /// Errors: std::runtime_error that lists the background fabrics.
  static FabricChoice background(const std::string& name);
  /// The background fabric `name` if it is not empty; else a fabric of `topology` if that is not empty; else the only
  /// background fabric; else a triangle. Errors: std::runtime_error, including if several fabrics are up.
  static FabricChoice of(const std::string& name, const std::string& topology);

  /// Errors: std::runtime_error that lists the hosts, unless `node` is a host or a switch.
  void require_node(const std::string& node) const;
};

/// Returns the user's background fabrics. Prints the names of dead fabrics on standard error. Errors:
/// std::runtime_error.
std::vector<live::Record> background_fabrics();
/// Returns the background fabric `name`. Errors: std::runtime_error that lists the background fabrics.
live::Record background_fabric(const std::string& name);
/// The topology of a background fabric. Errors: std::runtime_error if its record or topology file is damaged.
topology::Graph graph_of(const live::Record& record);

/// Command-line options of a run.
struct RunOptions {
  std::string nic = default_nic_kind()->name();
  NicOptions nic_options = {};
  std::string topology = "triangle";
  std::string fabric = {};
  bool out_of_band = false;
  /// The option that needs switches that reduce, for errors: "--algo collnet". Empty: none.
  std::string reduction_for = {};
  std::vector<std::string> devices = {};
  std::string path = {};
  double timeout_scale = 1;
};

/// The calls of a command, in this order: the constructor, NicKind::run_in_guest(), enter(), build(). Thread safety:
/// none.
class RunBed {
 public:
  /// Checks the options. Errors: std::runtime_error.
  explicit RunBed(const RunOptions& options);
  /// A bed of the default NIC kind, for commands that use a background fabric at the same time as a run.
  /// `reduction_for`: see RunOptions. Errors: std::runtime_error if the NIC kind cannot provide the topology, or no
  /// switch can reduce.
  explicit RunBed(FabricChoice fabric, const std::string& reduction_for = {});

  NicKind& nic() { return *nic_; }
  const topology::Graph& graph() const { return fabric_.graph; }
  /// Set for a background fabric only.
  const std::optional<live::Record>& record() const { return fabric_.record; }
  double call_seconds() const;

  /// Enters the namespaces of the run, as NicKind::enter(): if it returns an exit code, the caller exits with it. A bed
  /// with RunOptions waits until no other run uses its background fabric, and reports the wait on standard error; the
  /// fabric stays locked until this process and its children have exited. Errors: std::runtime_error.
  std::optional<int> enter();
  /// Builds the test bed, or uses the background fabric. A second call removes the first test bed. `out_of_band`:
  /// whether ranks need oob0 even if the user has not chosen it. Errors: std::runtime_error.
  TestBed& build(bool out_of_band);
  TestBed& bed() { return *bed_; }

  /// Finds the devices of a plugin in a session of `subject`, and adds to `subject` the devices that their names do not
  /// identify. Errors: as match_devices().
  std::vector<DeviceMatch> find_devices(control::Subject& subject, control::Session& session);

 private:
  void require_reducing_bed(const std::string& user);

  std::unique_ptr<NicKind> nic_;
  FabricChoice fabric_;
  bool is_run_ = false;  ///< of plugins, not a command of `fabric exec`
  bool out_of_band_ = false;
  bool starts_reduction_ = false;
  std::vector<DeviceChoice> devices_;
  std::optional<RankPath> path_;
  double timeout_scale_ = 1;
  std::optional<live::Joined> joined_;
  Descriptor turn_;
  std::optional<TestBed> bed_;
};

}  // namespace plugfest::bed
