// Selects mutants and runs them against their rules: the kill matrix.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "conformance/mutants/mutant.h"
#include "conformance/rules/rule.h"
#include "harness/bed/test_bed.h"
#include "harness/control/session.h"
#include "harness/report/results.h"

namespace plugfest::mutants {

/// Which rules run on a mutant.
enum class Coverage {
  kDeclared,  ///< the rules that it declares
  kDecisive,  ///< also all rules that must not fail on it
  kEvery,     ///< also rules that may fail on it, so that their outcome decides nothing
};

struct KillSettings {
  std::vector<const Mutant*> mutants;
  /// The folder of the mutants' libraries: lib/mutants.
  std::string folder;
  control::Limits limits = {};
  std::uint64_t seed = 1;
  Coverage coverage = Coverage::kDeclared;
  /// If not empty: only the rules of `coverage` that match, as in conformance::select_rules().
  std::vector<std::string> rules = {};
  /// Whether rules repeat checks more often and take any time, as with plugfest run --thorough.
  bool thorough = false;
  /// Whether NCCL can run: the test bed has an out-of-band network, and libnccl.so.2 is found. Without it, mutants of
  /// rules that run NCCL are omitted.
  bool nccl = false;
  /// If not null: once it is true, no further mutant or rule starts.
  const std::atomic<bool>* stop = nullptr;
  /// The command that starts this program, used in the command lines that repeat a verdict.
  std::string program = "plugfest";
  /// Called with the result of each mutant, from one thread at a time.
  std::function<void(const report::MutantResult&)> on_result = {};
};

/// The folder of the libraries of mutants beside this program. It exists only in builds with tests.
std::string default_folder();

/// The mutants of the library libmutant-shim.so in `folder`, sorted by name; valid until the process ends.
/// Errors: std::runtime_error that names the library if it cannot be loaded.
const std::vector<Mutant>& load_mutants(const std::string& folder);

/// Returns the mutants that match any of `patterns` (names and globs); all if there is no pattern. Errors:
/// std::runtime_error that names a pattern without a match.
std::vector<const Mutant*> select_mutants(const std::vector<Mutant>& mutants, const std::vector<std::string>& patterns);

/// Whether a rule that the mutant declares runs NCCL.
bool needs_nccl(const Mutant& mutant, const conformance::Catalog& catalog);
/// Whether a rule that the mutant declares needs two links between its hosts.
bool needs_two_links(const Mutant& mutant, const conformance::Catalog& catalog);
/// Whether a rule that the mutant declares runs NCCL with CollNet, and thus needs in-network reduction.
bool needs_reduction(const Mutant& mutant, const conformance::Catalog& catalog);
/// Whether two hosts of `graph` have two links to each other.
bool has_two_links(const topology::Graph& graph);
/// Whether a rule that the mutant declares is part of thorough runs only.
bool is_thorough(const Mutant& mutant, const conformance::Catalog& catalog);

/// The rules of `coverage` that can run on the mutant. Rules that run NCCL or are part of thorough runs take long: they
/// are added only to mutants that declare such a rule. `patterns`: see KillSettings::rules. Errors: as select_rules().
std::vector<const conformance::Rule*> rules_for(const conformance::Catalog& catalog, const Mutant& mutant,
                                                Coverage coverage, std::span<const std::string> patterns = {});

/// Runs the mutants of `settings`. Each path of `bed` serves one mutant at a time; if more than declared rules run, all
/// paths serve the same one; mutants that need NCCL run alone at the end. Omits mutants that need two links if no path
/// has a second, and those that need reduction if no switch can reduce; the caller has started the reduction. A rule
/// kills a mutant when its verdict is fail, warn, crash or timeout. Returns the results in the order of
/// `settings.mutants`, without mutants whose rules did not all run because of `settings.stop`. Errors: std::logic_error
/// when a mutant names a rule that does not exist.
std::vector<report::MutantResult> kill(bed::TestBed& bed, const conformance::Catalog& catalog,
                                       const KillSettings& settings);

}  // namespace plugfest::mutants
