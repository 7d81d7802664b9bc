// Groups broken rules by their cause, so that one fault of a plugin is one message.
#pragma once

#include <string>
#include <vector>

#include "harness/report/results.h"

namespace plugfest::report {

/// Bad rules with one cause.
struct CauseGroup {
  /// "40 rules hang in read at p.c:56 (test)", "1 rule crashes in init at p.c:10", "3 rules fail: test returned
  /// ncclInternalError (3)".
  std::string text;
  /// In the order of the contract.
  std::vector<const RuleResult*> rules;
  /// The rule to look at first: it is about the call that failed, or the first one.
  const RuleResult* start = nullptr;

  /// "40 rules hang in read at p.c:56 (test); start with TS-02".
  std::string headline() const;
};

/// Whether two rules were broken by the same thing: equal verdicts (fail and warn are one), and calls that hang or
/// crash at one place of the plugin, or calls that returned one error, or messages that differ only in numbers and
/// ranks.
bool same_cause(const RuleResult& one, const RuleResult& other);

/// The group of `rule` if other rules belong to it too; null otherwise.
const CauseGroup* shared_cause(const std::vector<CauseGroup>& groups, const RuleResult& rule);

/// All bad rules of a run but missing ones, the largest group first. The result refers to `rules`.
std::vector<CauseGroup> group_by_cause(const std::vector<RuleResult>& rules);

}  // namespace plugfest::report
