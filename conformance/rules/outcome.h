// Runs one rule once and determines its verdict.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/rules/rule.h"
#include "conformance/rules/rule_body.h"
#include "harness/report/results.h"

namespace plugfest::conformance {

/// The result of one rule, before known findings are applied.
struct RuleOutcome {
  report::Verdict verdict = report::Verdict::kMissing;
  /// For the user: expected and got, the reason of a skip, or observations. Lines separated by '\n'.
  std::string message;
  /// Whether the ranks can serve another rule.
  bool ranks_reusable = false;
  report::Cause cause = {};
  /// Whether the rule ended because a call returned a code that no plugin may return (control::UndefinedCode).
  bool undefined_code = false;
};

/// `message`, and the frames of a stack on a line each.
std::string with_stack(const std::string& message, const std::vector<std::string>& stack);

/// Runs `rule`. Never throws: each exception of a body or of the harness becomes a verdict.
///  returned: pass; with weaknesses warn (fail if `strict`); info for an [I] rule.
///  Broken, or a call that deviated: fail for [M]; warn for [S] (fail if `strict`); info for [I].
///  UndefinedCode: the same, and `RuleOutcome::undefined_code`.
///  Hung: timeout. Crashed: crash. NotApplicable: n/a. Skipped, Unusable: skip. Interrupted: missing.
///  Any other exception: error.
RuleOutcome run_rule(const Rule& rule, const RuleContext& context, std::uint64_t run_seed, bool strict);

}  // namespace plugfest::conformance
