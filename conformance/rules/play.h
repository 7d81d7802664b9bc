// Runs one rule once and weighs what came of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/rules/rule.h"
#include "conformance/rules/rule_body.h"
#include "harness/report/results.h"

namespace plugfest::conformance {

/// The seed of one rule: follows from the run's seed and the rule's id alone.
std::uint64_t seed_of(std::uint64_t run_seed, std::string_view rule_id);

struct Played {
  report::Verdict verdict = report::Verdict::kMissing;
  /// What the user reads: expected and got, the reason of a skip, what was observed. Lines separated by '\n'.
  std::string message;
  /// Whether the ranks can serve another rule.
  bool clean = false;
};

/// Runs `rule` on `stage`. Never throws: what a body or the harness throws becomes a verdict.
///  returned: pass; warn with weaknesses (fail when `strict`); info for an [I] rule.
///  Broken, or a call that deviated: fail for [M]; warn for [S] (fail when `strict`); info for [I].
///  Hung: timeout. Crashed: crash. NotApplicable: n/a. Skipped: skip. Interrupted: missing.
///  Anything else: error.
Played play(const Rule& rule, const Stage& stage, std::uint64_t run_seed, bool strict);

}  // namespace plugfest::conformance
