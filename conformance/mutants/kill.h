// Runs the mutants against their rules: the kill matrix.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conformance/mutants/mutant.h"
#include "conformance/rules/ground.h"
#include "conformance/rules/rule.h"
#include "harness/report/results.h"

namespace plugfest::mutants {

struct KillSettings {
  /// Which ones: see select_mutants.
  std::vector<const Mutant*> mutants;
  /// Where their libraries lie: lib/mutants.
  std::string folder;
  control::Limits limits = {};
  std::uint64_t seed = 1;
  /// How to call this program again: the begin of the commands that show a verdict again.
  std::string program = "plugfest";
  /// Called once for each mutant as it is judged, from one thread at a time.
  std::function<void(const report::MutantResult&)> on_result = {};
};

/// The mutants that match any of `patterns` (names and globs), by name; none selects all.
/// Errors: std::runtime_error naming the pattern that matches nothing.
std::vector<const Mutant*> select_mutants(const std::vector<std::string>& patterns);

/// Loads each mutant on one path of `ground`, runs the rules that must catch it and a few that must not, several
/// mutants at once. A rule caught it when it ended as fail, warn, crash or timeout. Results in the order of
/// `settings.mutants`. Errors: std::logic_error when a mutant names a rule that does not exist.
std::vector<report::MutantResult> kill(conformance::Ground& ground, const conformance::Catalogue& catalogue,
                                       const KillSettings& settings);

}  // namespace plugfest::mutants
