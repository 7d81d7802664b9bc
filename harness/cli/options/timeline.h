// --trace: the run as a timeline.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/command_line.h"
#include "harness/report/output_file.h"
#include "harness/report/results.h"
#include "harness/trace/chrome_trace.h"

namespace plugfest::cli {

/// Calls of all ranks and, above them, the rules. Open it before the work begins, write it when it has ended.
class Timeline {
 public:
  void add_option(Command command);
  /// Errors: std::runtime_error when the file cannot be written.
  void open();
  /// Who is to be told of calls; null unless the user asked for a timeline.
  control::CallObserver* observer() { return file_ ? &trace_ : nullptr; }
  /// A rule has just ended. One thread at a time.
  void add(const report::RuleResult& rule);
  /// What was made to go wrong in a run that began at `origin_ns`, CLOCK_MONOTONIC.
  void add(const std::vector<report::FaultRecord>& faults, std::int64_t origin_ns);
  void write();

  /// Empty if the user asked for none.
  const std::string& path() const { return path_; }
  /// Instead of write(): puts there what was written elsewhere.
  void put(const std::string& content) { file_->write(content); }

 private:
  std::string path_;
  std::unique_ptr<report::OutputFile> file_;
  trace::ChromeTrace trace_;
  /// When the last rule of each lane ended. Rules that ran side by side go to different lanes.
  std::vector<std::int64_t> lane_ends_ns_;
};

}  // namespace plugfest::cli
