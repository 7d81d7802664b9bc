// Prints a run to a terminal or a log: progress, failures, summary.
#pragma once

#include <cstddef>
#include <cstdio>
#include <span>
#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// The style of the output.
struct Style {
  bool colour = false;
  /// Show a progress line at the bottom.
  bool progress = false;

  /// Colour and progress on a terminal. No colour if NO_COLOR is set. No colour and no progress if TERM is "dumb".
  static Style of(std::FILE* stream);
};

/// Prints one line per rule when it ends, then the details of failures, then the summary. Thread safety: none.
class Console {
 public:
  explicit Console(std::FILE* stream, Style style) : stream_(stream), style_(style) {}

  /// Prints "plugfest 0.1.0: Mesh v12 (./libnccl-net-mesh.so), 45 rules, triangle, NIC roce, Linux 6.1.0, seed 7".
  /// `rules`: the number of rules of the run.
  void begin(const Document& document, const Run& run, std::size_t rules);
  /// Prints how NCCL loaded the plugin.
  void loader(const Loader& loader);
  void rule(const RuleResult& rule);
  /// Prints faults, the details of bad verdicts, and the summary.
  void end(const Run& run);

  /// Prints one line for each rule whose verdicts differ between repeated runs.
  void flakes(std::span<const Run> runs);

  /// Prints a mutant's line of the kill matrix.
  void mutant(const MutantResult& mutant);
  /// Prints the details of mutants that survived or that other rules caught, and the summary.
  void end(const std::vector<MutantResult>& mutants, double seconds);

  /// Clears the progress line before other output.
  void pause();

 private:
  void print(const std::string& text);
  void progress();
  std::string paint(std::string_view colour, std::string_view text) const;
  void details(const RuleResult& rule);
  void devices(const Run& run);
  void faults(const Run& run);
  void missing(const Run& run);

  std::FILE* stream_;
  Style style_;
  std::size_t total_ = 0;
  std::size_t ended_ = 0;
  bool shown_ = false;
};

}  // namespace plugfest::report
