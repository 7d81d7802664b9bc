// Texts, counts and exit codes of verdicts, and the shared causes of bad verdicts.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/results.h"

namespace plugfest::report {

/// All verdicts in the order of summaries.
inline constexpr std::array kVerdicts = {
    Verdict::kPass, Verdict::kFail, Verdict::kCrash, Verdict::kTimeout,       Verdict::kError,  Verdict::kMissing,
    Verdict::kWarn, Verdict::kInfo, Verdict::kSkip,  Verdict::kNotApplicable, Verdict::kWaived,
};

/// "pass", "n/a", …: as in results.json.
std::string_view text(Verdict verdict);

/// Whether the verdict makes a run fail: fail, crash, timeout, error, missing.
bool is_bad(Verdict verdict);
/// Whether the plugin broke the rule: fail, warn, crash, timeout.
bool is_broken(Verdict verdict);
/// Whether the plugin satisfies the rule or the rule does not apply: pass, info, n/a.
bool is_good(Verdict verdict);

/// The number of rules per verdict, indexed by the verdict's value.
struct Summary {
  std::array<std::size_t, kVerdicts.size()> counts{};

  void add(const RuleResult& rule) { ++counts[static_cast<std::size_t>(rule.verdict)]; }
  std::size_t of(Verdict verdict) const { return counts[static_cast<std::size_t>(verdict)]; }
  std::size_t total() const;
  /// 2 if any error or missing, or if there is no verdict at all; else 1 if any fail, crash or timeout; else 0.
  int exit_code() const;
  /// "45 pass, 1 fail, 2 n/a", without counts of 0.
  std::string describe() const;
};

Summary summarize(std::span<const Run> runs);

/// Returns the exit code of plugfest. It is 128 plus the number of the signal that stopped the run. Otherwise, it is 2
/// if any rule ended as error or missing, if a fault was never injected, or if no rule was tested. Otherwise, it is 1
/// if any rule ended as fail, crash or timeout, or if a mutant survived or also fails undeclared rules. In all other
/// cases it is 0.
int exit_code(const Document& document);

/// A rule that ended with different verdicts when one version was tested several times with one seed.
struct Flake {
  std::string id;
  int api = 0;
  Summary verdicts;
};

/// All flakes among runs of one plugin, in the order of the runs and rules.
std::vector<Flake> find_flakes(std::span<const Run> runs);

/// Bad rules with one cause, so that one bug of a plugin gives one message.
struct CauseGroup {
  /// "40 rules hang in read at p.c:56 (test)", "1 rule crashes in init at p.c:10", "3 rules fail: test returned
  /// ncclInternalError (3)".
  std::string text;
  /// The rules in the order of the contract.
  std::vector<const RuleResult*> rules;
  /// The rule to examine first: it is about the call that failed, or it is the first one.
  const RuleResult* start = nullptr;

  /// "40 rules hang in read at p.c:56 (test); start with TS-02".
  std::string headline() const;
};

/// Whether two rules were broken by one cause. Their verdicts must be equal (fail and warn count as one). In addition,
/// calls must hang or crash at one location in the plugin, or return one error, or the messages must differ only in
/// numbers and ranks.
bool same_cause(const RuleResult& one, const RuleResult& other);

/// The group of `rule` if other rules belong to it too; null otherwise.
const CauseGroup* shared_cause(const std::vector<CauseGroup>& groups, const RuleResult& rule);

/// All bad rules of a run except missing ones, the largest group first. The result refers to `rules`.
std::vector<CauseGroup> group_by_cause(const std::vector<RuleResult>& rules);

}  // namespace plugfest::report
