// Runs selected rules for one plugin and version, several at once, each on ranks of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conformance/rules/rule.h"
#include "conformance/rules/rule_body.h"
#include "fabric/topology/graph.h"
#include "harness/control/session.h"
#include "harness/report/results.h"

namespace plugfest::conformance {

struct RunSettings {
  /// What to run: see select_rules.
  std::vector<const Rule*> rules;
  /// Where: paths that share no rank. One worker serves each.
  std::vector<RulePath> paths;
  /// The library's file; empty for a transport built into NCCL.
  std::string library;
  /// The version under test, resolved.
  int api = 0;
  control::Limits limits = {};
  /// For rules that break the network; null: they are skipped.
  faults::Injector* injector = nullptr;
  std::uint64_t seed = 1;
  /// Broken [S] rules fail.
  bool strict = false;
  /// The command that runs all of this again; a result adds its " --rule CN-06".
  std::string rerun;
  /// Called on a rule's own thread when it begins on its path, if it exists for this subject.
  std::function<void(const Rule&, const RulePath&)> on_begin = {};
  /// Called on the same thread when its code has ended and its ranks are still as it left them. It may add to the
  /// result.
  std::function<void(report::RuleResult&)> on_end = {};
  /// Called once for each rule as it ends, from one thread at a time.
  std::function<void(const report::RuleResult&)> on_result = {};
  /// Set from elsewhere (a signal handler, say): no further rule starts, and what did not run stays missing.
  const std::atomic<bool>* stop = nullptr;
};

/// Runs all of `settings.rules`, which belong to `catalogue`; results in the order of the catalogue.
///
/// The path of a rule follows from its place in the catalogue and its random numbers from its id and the seed, so that
/// one rule alone repeats what it did among the others. Every rule gets a result, whatever goes wrong with it.
/// `session`: null only when no rule asks for a rank. Errors: none but std::bad_alloc.
std::vector<report::RuleResult> run_rules(control::Session* session, const Catalogue& catalogue,
                                          const RunSettings& settings);

/// Paths of `graph` that share no rank, as many as possible going by their order.
std::vector<RulePath> disjoint_paths(const topology::Graph& graph);

}  // namespace plugfest::conformance
