// Files that a run leaves behind: packet captures, timelines, and the rules that failed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "harness/bed/test_bed.h"
#include "harness/cli/command_line.h"
#include "harness/report/output_file.h"
#include "harness/report/results.h"
#include "harness/trace/chrome_trace.h"

namespace plugfest::cli {

/// --pcap: while a rule runs, all NICs capture to a file of the rule. The files of rules that pass are removed.
/// Requires that rules run one after the other.
class Captures {
 public:
  void add_option(Command command);
  bool wanted() const { return !folder_.empty(); }
  /// Makes the folder. Errors: std::runtime_error.
  void open();

  /// `run`: number of the run within the command, from 0. Errors: std::runtime_error.
  void begin(bed::TestBed& bed, std::size_t run, const std::string& rule);
  void end(bed::TestBed& bed, std::size_t run, const report::RuleResult& result);
  /// Adds the captured packets to the results of rules that failed, and removes the other files. Call it once, when all
  /// ranks have ended, since a NIC writes packets up to 0.1 s late. Packets that a killed rank had not written are
  /// missing.
  void add_to(report::Document& document);

 private:
  std::filesystem::path file(std::size_t run, const std::string& rule) const;

  std::string folder_;
  std::set<std::filesystem::path> files_;
};

/// --trace: records the calls of all ranks, the rules and the faults. Open it before the run starts, and write it when
/// the run has ended.
class Timeline {
 public:
  void add_option(Command command);
  /// Errors: std::runtime_error if the file cannot be written.
  void open();
  /// The observer that records calls; null if the user asked for no timeline.
  control::CallObserver* observer() { return file_ ? &trace_ : nullptr; }
  /// Records a rule that has just ended. Not thread-safe.
  void add(const report::RuleResult& rule);
  /// Records the faults of a run. `origin_ns`: start of the run, CLOCK_MONOTONIC.
  void add(const std::vector<report::FaultRecord>& faults, std::int64_t origin_ns);
  void write();

  /// Empty if the user asked for no timeline.
  const std::string& path() const { return path_; }
  /// Writes content produced in a guest. Replaces write().
  void write_content(const std::string& content) { file_->write(content); }

 private:
  std::string path_;
  std::unique_ptr<report::OutputFile> file_;
  trace::ChromeTrace trace_;
  /// The end of the last rule of each lane. Rules that ran at the same time are in different lanes.
  std::vector<std::int64_t> lane_ends_ns_;
};

/// --last-failed: which rules of a plugin failed. A file for each plugin in $XDG_STATE_HOME/plugfest/last-failed, or in
/// ~/.local/state/plugfest/last-failed: the plugin's path, then the id of each rule that failed and has not passed
/// since, one per line.
class LastFailed {
 public:
  /// `plugin`: Plugin::load. Reads the file, if there is one.
  explicit LastFailed(const std::string& plugin);

  /// The ids of the rules; empty if none failed.
  const std::set<std::string>& rules() const { return rules_; }

  /// Adds the rules of `document` that failed, removes those that passed in each of its runs, and writes the file if
  /// its content changed. Also removes files about plugins that no longer exist. Does nothing if the folder cannot be
  /// written, since that must not fail a run.
  void update(const report::Document& document);

  /// The folder of the files; empty if neither XDG_STATE_HOME nor HOME is set.
  static std::string folder();

 private:
  void write() const;

  std::string plugin_;
  std::string path_;  ///< empty without a folder
  std::set<std::string> rules_;
};

}  // namespace plugfest::cli
