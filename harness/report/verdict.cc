#include "harness/report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace plugfest::report {

std::string_view text(Verdict verdict) { return kVerdictTexts[static_cast<std::size_t>(verdict)]; }

bool is_bad(Verdict verdict) {
  return verdict == Verdict::kFail || verdict == Verdict::kCrash || verdict == Verdict::kTimeout ||
         verdict == Verdict::kError || verdict == Verdict::kMissing;
}

bool is_broken(Verdict verdict) {
  return verdict == Verdict::kFail || verdict == Verdict::kWarn || verdict == Verdict::kCrash ||
         verdict == Verdict::kTimeout;
}

bool is_good(Verdict verdict) {
  return verdict == Verdict::kPass || verdict == Verdict::kInfo || verdict == Verdict::kNotApplicable;
}

std::size_t Summary::total() const { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }

int Summary::exit_code() const {
  if (total() == 0 || of(Verdict::kError) != 0 || of(Verdict::kMissing) != 0) return 2;
  return of(Verdict::kFail) != 0 || of(Verdict::kCrash) != 0 || of(Verdict::kTimeout) != 0 ? 1 : 0;
}

std::string Summary::describe() const {
  std::string line;
  for (const Verdict verdict : kVerdicts) {
    if (of(verdict) == 0) continue;
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", of(verdict), text(verdict));
  }
  return line.empty() ? "no rules" : line;
}

Summary summarize(std::span<const Run> runs) {
  Summary summary;
  for (const Run& run : runs) {
    for (const RuleResult& rule : run.rules) summary.add(rule);
  }
  return summary;
}

int exit_code(const Document& document) {
  if (document.stop_signal != 0) return 128 + document.stop_signal;
  bool deviates = document.loader && !document.loader->deviation.empty();
  // A fault that was never injected says nothing about the plugin, so that the run must not look as if it had passed.
  bool incomplete = std::any_of(document.runs.begin(), document.runs.end(),
                                [](const Run& run) { return !run.missed_faults.empty(); });
  for (const MutantResult& mutant : document.mutants) {
    deviates = deviates || !mutant.killed || !mutant.caught_wrongly.empty();
    incomplete = incomplete || std::any_of(mutant.evidence.begin(), mutant.evidence.end(), [](const RuleResult& rule) {
                   return rule.verdict == Verdict::kError || rule.verdict == Verdict::kMissing;
                 });
  }
  if (incomplete) return 2;
  const int code = document.mutants.empty() ? summarize(document.runs).exit_code() : 0;
  return code == 0 && deviates ? 1 : code;
}

std::vector<Flake> find_flakes(std::span<const Run> runs) {
  std::vector<Flake> rules;
  for (const Run& run : runs) {
    for (const RuleResult& rule : run.rules) {
      const auto same = [&](const Flake& flake) { return flake.id == rule.id && flake.api == run.api; };
      auto found = std::find_if(rules.begin(), rules.end(), same);
      if (found == rules.end()) found = rules.insert(rules.end(), {rule.id, run.api, {}});
      found->verdicts.add(rule);
    }
  }
  std::erase_if(rules, [](const Flake& flake) {
    return std::count_if(flake.verdicts.counts.begin(), flake.verdicts.counts.end(), [](auto n) { return n != 0; }) < 2;
  });
  return rules;
}

}  // namespace plugfest::report
