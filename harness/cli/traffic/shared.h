// Code that `plugfest replay`, `coll`, `nccl` and `nccl exec` share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/bed/run_bed.h"
#include "harness/cli/command.h"
#include "harness/cli/command_line.h"
#include "harness/cli/options.h"
#include "harness/cli/subject.h"
#include "harness/control/call.h"
#include "harness/control/launcher.h"
#include "harness/control/session.h"
#include "harness/report/output_file.h"

namespace plugfest::cli {

/// -b, -e, -f and -n: the rows of the table of nccl-tests.
struct TableOptions {
  std::string begin = "8", end;
  double factor = 2;
  int operations = 5;

  void add_options(Command command, double max_operations);
  /// Bytes. `max`: the largest size that is accepted. Errors: std::runtime_error.
  std::vector<std::uint64_t> sizes(std::uint64_t max) const;
};

/// The options of commands that run one rank on each host.
struct TeamOptions {
  std::string plugin;
  std::string api;
  bed::RunOptions bed;
  int ranks = 0;
  std::optional<std::uint64_t> seed;
  Outputs outputs;

  void add_options(Command command);
  /// The version of the net interface to use. Errors: std::runtime_error.
  int version_of(const Plugin& named) const;
};

/// The test bed of a command, and a session for each plugin on it.
///
/// The calls of a command, in this order: the constructor, enter(), build(), add_session().
class TeamBed {
 public:
  /// Checks the options and opens the JSON file. Errors: std::runtime_error.
  explicit TeamBed(TeamOptions& options);

  /// Runs the command in a virtual machine if the NIC kind needs one, and enters the namespaces of the run. If it
  /// returns an exit code, the command ends with it. Errors: std::runtime_error.
  std::optional<int> enter();
  /// Builds the test bed. `needs_out_of_band`: whether one of the plugins needs oob0. Errors: std::runtime_error.
  void build(bool needs_out_of_band);

  /// A plugin and its session.
  struct Subject {
    std::string name;
    int api = 0;
    std::unique_ptr<control::Session> session;
  };
  /// Errors: std::runtime_error.
  Subject add_session(const Plugin& plugin, int api);

  /// One rank for each host, for as many hosts as the user wants. Errors: std::runtime_error if there are fewer than 2.
  bed::RankGroup group();
  std::uint64_t seed() const { return seed_; }
  const topology::Graph& graph() const { return bed_.graph(); }
  std::string nic() { return bed_.nic().name(); }
  /// The stream for text: standard error if JSON is written to standard output.
  std::FILE* text_stream() const { return options_.outputs.text_stream(); }
  bool wants_json() const { return !options_.outputs.paths().empty(); }
  /// The first members of the document of `tool`: the subject, the bed and the seed.
  nlohmann::ordered_json about(const std::string& tool, const Plugin& plugin, const Subject& subject);
  void write_json(const nlohmann::ordered_json& document);

 private:
  TeamOptions& options_;
  bed::RunBed bed_;
  std::uint64_t seed_;
};

/// The deviation of a rank, its stack if it hung or crashed, and the end of the plugin's log.
std::string failure_text(const control::Deviation& deviation, const control::Lease& lease);

/// Prints `failure` under "FAIL subject", and the command that repeats it.
void print_failure(std::FILE* out, const std::string& subject, const std::string& failure, const std::string& rerun);

/// The options of `nccl` and `nccl exec`.
struct JobOptions {
  std::string plugin;
  std::string topology;  ///< empty: default_job_topology()
  int ranks = 0;         ///< 0: one in each host
  std::string device_memory = "shared";
  std::string logs;
  std::string algorithm;  ///< --algo; empty: NCCL's choice
  std::string trace;      ///< see JobTrace
  bool packets = false;
  std::string profiler;  ///< the library of a profiler plugin; empty: none

  void add_options(Command command);
  bool split_memory() const { return device_memory == "split"; }
  bool coll_net() const { return algorithm == "collnet"; }
  /// The variables of NCCL that the options determine. Errors: std::runtime_error if there is no such profiler.
  control::Environment environment() const;
  /// The plugin that the user named; by default the bundled one, with CollNet the bundled one of sharp. Errors:
  /// std::runtime_error, including if it lacks CollNet.
  Plugin find() const;
};

/// The bed of a job. Errors: std::runtime_error, including if NCCL cannot use `plugin` on the topology.
bed::RunBed bed_of_job(const JobOptions& options, const Plugin& plugin);

/// The reason, from the logs of all ranks, why NCCL does not use `plugin`, or the CollNet or profiler that the user
/// chose; "" if it uses them.
std::string fallback_of(const JobOptions& job, const Plugin& plugin, const std::vector<std::string>& logs);
/// Prints the result of fallback_of() on standard error.
void print_fallback(const std::string& reason);

/// Prints the end of a rank's log on standard error.
void print_log(std::size_t rank, const std::string& host, const std::string& log);

/// Writes a rank's log to rank-N.log in `folder`; nothing if `folder` is empty. Errors: std::runtime_error.
void write_log(const std::string& folder, std::size_t rank, const std::string& log);

/// Defined in nccl_exec.cc.
void add_nccl_exec(Command nccl);

}  // namespace plugfest::cli
