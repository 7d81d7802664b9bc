// Runs selected rules for one plugin and version. Rules on different paths run at the same time, except those that run
// alone, which follow all others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "conformance/rules/rule.h"
#include "conformance/rules/rule_body.h"
#include "harness/bed/test_bed.h"
#include "harness/control/session.h"
#include "harness/report/known_findings.h"
#include "harness/report/results.h"

namespace plugfest::conformance {

class Turns;

struct RunSettings : RunContext {
  /// The rules to run: see select_rules().
  std::vector<const Rule*> rules;
  /// Paths that share no rank. One worker thread serves each.
  std::vector<bed::RankPath> paths;
  /// Ranks for rules with more than two ranks, which one more worker thread runs.
  bed::RankGroup hosts = {};
  std::uint64_t seed = 1;
  /// Whether broken [S] rules fail.
  bool strict = false;
  /// Known findings about this plugin: see KnownFindings::about().
  report::KnownFindings known = {};
  /// No further rule starts once this number of rules has ended with a bad verdict; 0: no limit. Rules that did not
  /// start are skipped.
  std::size_t max_failures = 0;
  /// The command that repeats this run; a result appends " --rule CN-06".
  std::string rerun;
  /// Appended to the message of a rule in which the kernel found no route to an address; empty: no advice.
  std::string advice_if_unreachable;
  /// Whether a rule must run alone, since a user's fault begins in it. Not null: all rules keep the order of the
  /// catalog, since such a fault may end in a later rule.
  std::function<bool(const Rule&)> runs_alone = {};
  /// Whether rules run one after the other, so that every event in the network belongs to one rule.
  bool one_at_a_time = false;
  /// Called on the thread of a rule that exists for this subject when it starts. The path connects ranks 0 and 1 of the
  /// rule.
  std::function<void(const Rule&, const bed::RankPath&)> on_begin = {};
  /// Called on the same thread when the rule's body has ended and its ranks still exist in the state in which the body
  /// left them. It may add to the result.
  std::function<void(report::RuleResult&)> on_end = {};
  /// Called with the final result of each rule that ran, from one thread at a time.
  std::function<void(const report::RuleResult&)> on_result = {};
  /// Shared by runs on different paths of the same hosts. A rule with more than two ranks uses several paths, so no
  /// rule of another run, which may stop a process or take a link down, runs at the same time. Null: the run is the
  /// only one.
  Turns* among_runs = nullptr;
  /// If not null: once it is true, no further rule starts, and rules that did not start are missing. May be set by a
  /// signal handler.
  const std::atomic<bool>* stop = nullptr;
};

/// Runs the rules of `settings.rules`, which belong to `catalog`, that are about the interface under test, and
/// returns one result per rule in the order of the catalog. Results are final: known findings are applied, and
/// --maxfail has set its skips.
///
/// The path of a rule depends only on its position in the catalog, and its random numbers on its id and the seed: a
/// rule behaves the same alone and among others.
/// `session`: may be null if no rule needs a rank. Errors: only std::bad_alloc.
std::vector<report::RuleResult> run_rules(control::Session* session, const Catalog& catalog,
                                          const RunSettings& settings);

/// The result of one rule, before known findings are applied.
struct RuleOutcome {
  report::Verdict verdict = report::Verdict::kMissing;
  /// For the user: the expected and the actual result, the reason of a skip, or observations. Lines separated by '\n'.
  std::string message;
  bool ranks_reusable = false;
  report::Cause cause = {};
  /// Whether the rule ended because a call returned a code that no plugin may return (control::UndefinedCode).
  bool undefined_code = false;
  /// See report::RuleResult::cut_short.
  bool cut_short = false;
};

/// How a plugin broke a clause.
struct Breach {
  /// The verdict of a [M] rule: fail, timeout or crash.
  report::Verdict verdict = report::Verdict::kFail;
  std::string message;
  report::Cause cause = {};
  /// See report::RuleResult::cut_short.
  bool cut_short = false;
};

/// Runs `part` of a rule. Returns nullopt if it returns. `library`: RunContext::library. Errors: UndefinedCode, and
/// exceptions that say nothing about the plugin.
std::optional<Breach> breach_in(const std::function<void()>& part, const std::string& library);

/// Runs `rule`. Never throws: each exception of a body or of the harness becomes a verdict.
///  returned: pass; with warnings warn (fail if `strict`); info for an [I] rule.
///  Broken, or a call that deviated: fail; info for [I]. Hung: timeout. Crashed: crash. For [S] all of them are warn
///  unless `strict`.
///  UndefinedCode: as Broken, and `RuleOutcome::undefined_code`.
///  NotApplicable: n/a. Skipped, Unusable: skip. Interrupted: missing. Any other exception: error.
RuleOutcome run_rule(const Rule& rule, const RuleContext& context, std::uint64_t run_seed, bool strict);

}  // namespace plugfest::conformance
