// What a person reads while a run goes on and when it has ended.
#pragma once

#include <cstddef>
#include <cstdio>
#include <span>
#include <string>

#include "harness/report/document.h"

namespace plugfest::report {

/// How a stream is to be written to.
struct Style {
  bool colour = false;
  /// A line at the bottom that is rewritten as the run goes on.
  bool progress = false;

  /// Colour and progress on a terminal; no colour with NO_COLOR set to anything, neither with TERM=dumb.
  static Style of(std::FILE* stream);
};

/// One line a rule as it ends, then everything about what went wrong, then the summary. Thread safety: none.
class Console {
 public:
  explicit Console(std::FILE* stream, Style style) : stream_(stream), style_(style) {}

  /// "plugfest 0.1.0: mesh v12 (./libnccl-net-mesh.so), 45 rules on triangle, roce, seed 7"
  void begin(const Document& document, const Run& run, std::size_t rules);
  /// What NCCL did with the plugin.
  void loader(const Loader& loader);
  void rule(const RuleResult& rule);
  /// The details of bad verdicts, and the summary.
  void end(const Run& run);

  /// A line for each rule that ended in different ways in repeated runs.
  void flakes(std::span<const Run> runs);

  /// The kill matrix: a line a mutant as it is judged, then the summary.
  void mutant(const MutantResult& mutant);
  void end(const std::vector<MutantResult>& mutants, double seconds);

  /// Clears the progress line, so that other output can follow.
  void pause();

 private:
  void print(const std::string& text);
  void progress();
  std::string paint(std::string_view colour, std::string_view text) const;
  void details(const RuleResult& rule);
  void faults(const Run& run);
  void missing(const Run& run);

  std::FILE* stream_;
  Style style_;
  std::size_t total_ = 0;
  std::size_t ended_ = 0;
  bool shown_ = false;
};

}  // namespace plugfest::report
