// Shared by the sources of `plugfest run`: its options, and a run whose options are valid.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/rules/rule.h"
#include "harness/bed/run_bed.h"
#include "harness/cli/options.h"
#include "harness/cli/recordings.h"
#include "harness/cli/subject.h"
#include "harness/report/known_findings.h"
#include "harness/report/results.h"

namespace plugfest::cli {

struct RunArguments : RuleOptions {
  std::string api;
  std::string interface;
  std::string release;
  bed::RunOptions bed;
  int max_failures = 0;
  bool fail_fast = false;
  bool last_failed = false;
  bool list = false;
  bool watch = false;
  bool with_nccl = false;
  bool emulate_gpu = false;
  bool thorough = false;
  bool patient = false;
  int repeat = 1;
  std::string shard;
  std::string wrap;
  std::vector<std::string> environment;
  ConsoleOption console;
  Outputs outputs;
  Timeline timeline;
  FaultOption faults;
  Captures captures;
  /// With --watch, in the process of a round: the file for its results.
  int round_results = -1;
};

/// Whether the run includes rules that run NCCL: with --with-nccl, or a --rule that names EE rules.
bool runs_nccl(const RunArguments& arguments);

struct PreparedRun {
  std::vector<const conformance::Rule*> rules;
  bed::RunBed bed;
  Plugin plugin;
  /// The versions to test, each with at least one selected rule.
  std::vector<PluginVersion> versions;
  report::KnownFindings known;
  std::uint64_t seed = 0;
  report::Document document;
  /// The topology that default_job_topology() chose; empty if the user chose it or triangle is the default.
  std::string topology = {};
};

/// Runs the rules and adds the results to the run's document. Call it after bed::RunBed::enter() has returned nothing.
/// Errors: std::runtime_error.
void execute(RunArguments& arguments, PreparedRun& run);

/// run --watch: tests again whenever the library's file changes.
///
/// Runs rounds, each in a process of its own, until a signal ends the command. Returns nothing in such a process, which
/// then runs the rules and calls hand_over(). Returns the exit code of the last round in the process that called it.
/// Before a round after the first one it waits until the library has changed; after such a round it prints the verdicts
/// that changed. Ends after the first round if that had no results. Sets a seed for all rounds in `arguments`.
/// Errors: std::runtime_error, including if options contradict --watch.
std::optional<int> watch(RunArguments& arguments);

/// Gives the results of a round to the process that compares them.
void hand_over(const RunArguments& arguments, const report::Document& document);

}  // namespace plugfest::cli
