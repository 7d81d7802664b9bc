// The harness mutants. The linker option --wrap redirects each function below to this file (see CMakeLists.txt).
// HARNESS_MUTANT selects the function that misbehaves; all others only call the real function.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "conformance/rules/runner.h"
#include "harness/control/session.h"
#include "harness/report/verdict.h"

// Mangled names of the redirected functions. They are the same on every 64-bit Linux.
#define RUN_RULES "_ZN8plugfest11conformance9run_rulesEPNS_7control7SessionERKNS0_7CatalogERKNS0_11RunSettingsE"
#define RUN_RULE "_ZN8plugfest11conformance8run_ruleERKNS0_4RuleERKNS0_11RuleContextEmb"
#define CHECK "_ZN8plugfest7control5Lease5checkEv"
#define EXIT_CODE "_ZNK8plugfest6report7Summary9exit_codeEv"

namespace plugfest {
namespace {

using report::Verdict;

bool broken_by(std::string_view mutant) {
  const char* chosen = std::getenv("HARNESS_MUTANT");
  return chosen != nullptr && chosen == mutant;
}

}  // namespace

using Results = std::vector<report::RuleResult>;

Results real_run_rules(control::Session*, const conformance::Catalog&,
                       const conformance::RunSettings&) asm("__real_" RUN_RULES);
Results run_rules(control::Session*, const conformance::Catalog&,
                  const conformance::RunSettings&) asm("__wrap_" RUN_RULES);

Results run_rules(control::Session* session, const conformance::Catalog& catalog,
                  const conformance::RunSettings& settings) {
  Results results = real_run_rules(session, catalog, settings);
  if (broken_by("drops_the_last_verdict") && results.size() > 1) results.pop_back();
  if (broken_by("drops_missing_verdicts"))
    std::erase_if(results, [](const report::RuleResult& result) { return result.verdict == Verdict::kMissing; });
  return results;
}

conformance::RuleOutcome real_run_rule(const conformance::Rule&, const conformance::RuleContext&, std::uint64_t,
                                       bool) asm("__real_" RUN_RULE);
conformance::RuleOutcome run_rule(const conformance::Rule&, const conformance::RuleContext&, std::uint64_t,
                                  bool) asm("__wrap_" RUN_RULE);

conformance::RuleOutcome run_rule(const conformance::Rule& rule, const conformance::RuleContext& context,
                                  std::uint64_t seed, bool strict) {
  conformance::RuleOutcome outcome = real_run_rule(rule, context, seed, strict);
  if (broken_by("forgets_the_verdict")) outcome.verdict = Verdict::kMissing;
  if (broken_by("passes_after_a_crash") && outcome.verdict == Verdict::kCrash) outcome.verdict = Verdict::kPass;
  if (broken_by("passes_after_a_hang") && outcome.verdict == Verdict::kTimeout) outcome.verdict = Verdict::kPass;
  return outcome;
}

void real_check(control::Lease*) asm("__real_" CHECK);
void check(control::Lease*) asm("__wrap_" CHECK);

void check(control::Lease* lease) {
  if (!broken_by("loses_a_rank")) real_check(lease);
}

int real_exit_code(const report::Summary*) asm("__real_" EXIT_CODE);
int exit_code(const report::Summary*) asm("__wrap_" EXIT_CODE);

int exit_code(const report::Summary* summary) {
  report::Summary told = *summary;
  const auto forget = [&](Verdict verdict) { told.counts[static_cast<std::size_t>(verdict)] = 0; };
  if (broken_by("exits_with_0_after_a_crash")) forget(Verdict::kCrash);
  if (broken_by("exits_with_0_despite_missing_verdicts")) forget(Verdict::kMissing);
  return real_exit_code(&told);
}

}  // namespace plugfest
