// Prints a run to a terminal or a log: progress, failures, summary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/report/progress.h"
#include "harness/report/results.h"
#include "harness/report/verdict.h"

namespace plugfest::report {

/// The amount of output.
///  kQuiet: only the failed rules and the summary. kNormal: failures and warnings when they occur, with the details
///  of one rule per cause. kVerbose: each rule, and the details of all failures.
enum class Detail : std::uint8_t { kQuiet, kNormal, kVerbose };

struct Style {
  bool color = false;
  /// Whether to show a progress line at the bottom.
  bool progress = false;
  Detail detail = Detail::kNormal;
  /// The command makes one run. In kNormal its good rules are then printed individually if they are few, otherwise
  /// counted by group; good rules of repetitions are only counted.
  bool only_run = true;
  /// How many of the slowest rules the end of a run lists.
  std::size_t durations = 0;

  /// `color`: "always", "never", or "auto", which uses color on a terminal or if FORCE_COLOR is set and not 0, unless
  /// NO_COLOR is set. Shows progress on a terminal. A terminal with TERM "dumb" does not count as a terminal.
  static Style of(std::FILE* stream, std::string_view color = "auto");
};

/// Prints rules when they end, then the details of failures, one for each cause, then the failed rules, then the
/// summary. Rows and tables have at most 80 columns. Thread safety: none.
class Console {
 public:
  explicit Console(std::FILE* stream, Style style) : stream_(stream), style_(style) {}

  /// Prints "plugfest 0.1.0: Mesh v12 (./libnccl-net-mesh.so), 45 rules, triangle, NIC roce, Linux 6.1.0, seed 7",
  /// unless quiet. `rules`: the number of rules of the run.
  void begin(const Document& document, const Run& run, std::size_t rules);
  /// Shows a rule that has started in the progress line.
  void started(const std::string& id);
  /// Shows the present estimate in the progress line.
  void refresh();
  /// "34 of 204 rules, 12 failed (9 hang in read at p.c:56), about 40 s left"; "" if no rule is left.
  std::string progress_text() const;
  void rule(const RuleResult& rule);
  /// Prints faults, the details of bad verdicts, the failed rules, and the summary.
  void end(const Run& run);

  /// Prints one line for each rule whose verdicts differ between repeated runs.
  void flakes(std::span<const Run> runs);

  /// Prints a mutant's line of the kill matrix.
  void mutant(const MutantResult& mutant);
  /// Prints the details of mutants that survived or also fail undeclared rules, and the summary.
  void end(const std::vector<MutantResult>& mutants, double seconds);
  /// Prints, for each rule that ran, the mutants that it killed.
  void kill_table(const std::vector<MutantResult>& mutants);

  /// Clears the progress line before other output.
  void pause();

 private:
  void print(const std::string& text);
  /// The bad rules so far that have the cause of `rule`, and `rule`.
  const std::vector<RuleResult>& add_to_cause(const RuleResult& rule);
  /// Prints a cause when a second rule has it, and that later rules are cut short.
  void shared_cause(const std::vector<RuleResult>& cause);
  std::string paint(std::string_view color, std::string_view text) const;
  void details(const RuleResult& rule);
  /// `first`: whether no run precedes it.
  void release(const ReleaseRecord& release, const Run& run, bool first);
  void devices(const Run& run);
  void faults(const Run& run);
  void missing(const Run& run);
  void failed_rules(const std::vector<CauseGroup>& groups);
  void groups(const Run& run);
  void slowest(const Run& run);
  /// Reports why messages bypassed the NIC, if they did.
  void transport(const Run& run);

  std::FILE* stream_;
  Style style_;
  Progress progress_;
  /// The bad rules so far by cause, without their records.
  std::vector<std::vector<RuleResult>> causes_;
  bool any_cut_short_ = false;
  bool shown_ = false;
};

}  // namespace plugfest::report
