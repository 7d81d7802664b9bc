// --pcap: keeps the packets of the rules that fail.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "harness/bed/test_bed.h"
#include "harness/cli/command_line.h"
#include "harness/report/results.h"

namespace plugfest::cli {

/// While a rule runs, all NICs capture to a file of the rule; of rules that pass, the file is removed. Requires that
/// rules run one after the other.
class Captures {
 public:
  void add_option(Command command);
  bool wanted() const { return !folder_.empty(); }
  /// Makes the folder. Errors: std::runtime_error.
  void open();

  /// `run`: which run of the command, from 0. Errors: std::runtime_error.
  void begin(bed::TestBed& bed, std::size_t run, const std::string& rule);
  void end(bed::TestBed& bed, std::size_t run, const report::RuleResult& result);
  /// Gives the results of rules that failed their packets, and removes the other files. Call it once, when all ranks
  /// have ended, since a NIC writes packets up to 0.1 s late. Those that a killed rank had not written are missing.
  void add_to(report::Document& document);

 private:
  std::filesystem::path file(std::size_t run, const std::string& rule) const;

  std::string folder_;
  /// Of rules that have begun.
  std::set<std::filesystem::path> files_;
};

}  // namespace plugfest::cli
