// First step of plugfest run: checks the arguments and reads what they name. Builds nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "conformance/rules/rule.h"
#include "harness/bed/devices.h"
#include "harness/cli/options/fabric_selection.h"
#include "harness/cli/options/subject.h"
#include "harness/cli/run/arguments.h"
#include "harness/report/baseline.h"
#include "harness/report/results.h"

namespace plugfest::cli {

/// Whether NCCL itself runs in the run: --with-nccl, or a --rule that names rules EE.
bool runs_nccl(const RunArguments& arguments);

/// The rules that --rule and --shard select. Errors: std::runtime_error.
std::vector<const conformance::Rule*> selected_rules(const RunArguments& arguments);

/// A run whose arguments are valid.
struct PreparedRun {
  std::vector<const conformance::Rule*> rules;
  std::unique_ptr<bed::NicKind> nic;
  FabricSelection fabric;
  Plugin plugin;
  /// The versions to judge, each with at least one selected rule.
  std::vector<PluginVersion> versions;
  report::KnownFindings known;
  std::vector<bed::DeviceChoice> devices;
  /// That of --path.
  std::optional<bed::RankPath> path;
  std::uint64_t seed = 0;
  /// Receives the results.
  report::Document document;

  /// Time limit of one call.
  double call_seconds(const RunArguments& arguments) const;
};

/// Checks the arguments, and opens the output files, so that errors appear before anything is built. Also reads
/// --faults into `arguments`. Errors: std::runtime_error.
PreparedRun prepare(RunArguments& arguments, std::vector<const conformance::Rule*> rules);

}  // namespace plugfest::cli
