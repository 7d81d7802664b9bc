// The kinds of NIC on which a plugin can run, behind one interface.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/netns/build.h"
#include "fabric/topology/graph.h"
#include "harness/bed/test_bed.h"

namespace plugfest::bed {

/// Command-line options that only some kinds accept.
struct NicOptions {
  /// --kernel: a kernel image, or a folder with boot/ and lib/modules/. Empty: the distribution's kernel.
  std::string kernel = {};
  /// --allow-host-changes: the kernel module may be loaded for the duration of the run.
  bool allow_host_changes = false;
};

/// Command-line options that a kind accepts.
struct NicSupport {
  bool background_fabric = false;  ///< --fabric
  bool out_of_band = true;         ///< --oob
  bool faults = false;             ///< --faults
  bool reduction = false;          ///< switches can reduce
  bool kernel = false;             ///< --kernel
  bool host_changes = false;       ///< --allow-host-changes
};

/// Result of a command that ran in a virtual machine.
struct GuestResult {
  int exit_code = 0;
  /// Content of the result files that the command wrote, by the path that was asked for.
  std::map<std::string, std::string> files;
};

/// One kind of NIC in one run. The object must outlive the test beds that it builds. Thread safety: none.
///
/// The calls of a run, in this order: check_topology(), run_in_guest(), enter(), build().
class NicKind {
 public:
  virtual ~NicKind() = default;

  /// The name for --nic: "roce".
  virtual std::string name() const = 0;
  /// The description for --help, after the name: "the user-space NIC".
  virtual std::string description() const = 0;
  virtual NicSupport support() const { return {}; }
  /// Factor for the time limits of calls.
  virtual double timeout_scale() const { return 1; }

  /// Errors: std::runtime_error if this kind cannot provide the topology.
  virtual void check_topology(const topology::Graph&) const {}

  /// Runs this process's own command line in a virtual machine, if this kind needs one. Returns nothing if the caller
  /// must continue in this process. `result_paths`: files that the command line tells the program to write; their
  /// content is returned and they are not written. Errors: std::runtime_error.
  virtual std::optional<GuestResult> run_in_guest(const std::vector<std::string>& result_paths);

  /// Enters the namespaces that build() needs, or makes all processes end with the caller if it needs none; as
  /// netns::enter_sandbox() and contain_processes(): if it returns an exit code, the caller exits with it. Call it
  /// while the process has one thread. Errors: std::runtime_error if this machine lacks what this kind needs,
  /// netns::NamespacesForbidden if it forbids namespaces.
  virtual std::optional<int> enter() = 0;

  /// The location of the hosts, for reports: "all hosts in one namespace". Empty: each in its own namespace. Call it
  /// after enter().
  virtual std::string layout() const { return ""; }

  /// Builds a test bed. `out_of_band`: hosts also get the interface oob0 on a network that all hosts reach.
  /// Errors: std::runtime_error.
  virtual TestBed build(const topology::Graph& graph, bool out_of_band) = 0;
};

/// Returns the kind that commands use by default: `roce`.
std::unique_ptr<NicKind> default_nic_kind();

/// Returns the kind of that name. Errors: std::runtime_error that lists the names, or names an option that the kind
/// does not accept.
std::unique_ptr<NicKind> make_nic_kind(const std::string& name, const NicOptions& options = {});

std::string describe_nic_kinds();

std::unique_ptr<NicKind> make_roce(const NicOptions& options);
std::unique_ptr<NicKind> make_loopback(const NicOptions& options);
std::unique_ptr<NicKind> make_rxe(const NicOptions& options);
std::unique_ptr<NicKind> make_vm(const NicOptions& options);
std::unique_ptr<NicKind> make_system(const NicOptions& options);

/// Returns the options for a fabric with NICs of the kind `roce` on every interface: each host gets the sysfs view, and
/// each NIC the delay of its link. `out_of_band`: hosts also get oob0.
netns::Options roce_fabric_options(const topology::Graph& graph, bool out_of_band);

/// Returns the variables with which programs in a host find its NICs: the folder of the drop-in libibverbs comes first
/// in LD_LIBRARY_PATH. Errors: std::runtime_error if that variable cannot express it.
control::Environment roce_environment();

/// Returns the variables of roce_environment(), and the one that loads the connection manager for librdmacm. Errors: as
/// roce_environment().
control::Environment roce_program_environment();

/// Builds a fabric with NICs of the kind `roce`. Requires namespaces: see netns::enter_sandbox(). Errors:
/// std::runtime_error.
TestBed roce_test_bed(const topology::Graph& graph, bool out_of_band);

/// Uses a background fabric that was built with roce_fabric_options() and the same arguments. Errors:
/// std::runtime_error.
TestBed roce_test_bed(const topology::Graph& graph, bool out_of_band, netns::BuiltFabric&& built);

}  // namespace plugfest::bed
