// Words, counts and exit codes of verdicts.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/results.h"

namespace plugfest::report {

/// All verdicts, in the order in which summaries name them.
inline constexpr std::array kVerdicts = {
    Verdict::kPass, Verdict::kFail, Verdict::kCrash, Verdict::kTimeout,       Verdict::kError,  Verdict::kMissing,
    Verdict::kWarn, Verdict::kInfo, Verdict::kSkip,  Verdict::kNotApplicable, Verdict::kWaived,
};

/// "pass", "n/a", …: as in results.json.
std::string_view text(Verdict verdict);
/// The verdict of that text. Errors: std::runtime_error when there is none.
Verdict verdict(std::string_view text);

/// Whether someone has to look into it: fail, crash, timeout, error, missing.
bool is_bad(Verdict verdict);

/// How many rules ended how; indexed by the verdict's value.
struct Summary {
  std::array<std::size_t, kVerdicts.size()> counts{};

  void add(const RuleResult& rule) { ++counts[static_cast<std::size_t>(rule.verdict)]; }
  std::size_t of(Verdict verdict) const { return counts[static_cast<std::size_t>(verdict)]; }
  std::size_t total() const;
  /// 2 if any error or missing, or nothing at all was asked for; else 1 if any fail, crash or timeout; else 0.
  int exit_code() const;
  /// "45 pass, 1 fail, 2 n/a": what there is any of.
  std::string describe() const;
};

Summary summarize(std::span<const Run> runs);

/// A rule that ended in different ways when the same version was judged several times with the same seed.
struct Flake {
  std::string id;
  int api = 0;
  Summary verdicts;
};

/// All flakes among runs of one plugin, in the order of the runs and rules.
std::vector<Flake> find_flakes(std::span<const Run> runs);

}  // namespace plugfest::report
