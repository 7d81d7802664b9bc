// The files that a run's document goes to.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/cli/command_line.h"
#include "harness/report/document.h"
#include "harness/report/output_file.h"

namespace plugfest::cli {

/// --json, --junit, --html, --markdown. Open them before the work begins, write them when it has ended, early or not.
struct Outputs {
  std::string json_path;
  std::string junit_path;
  std::string html_path;
  std::string markdown_path;

  void add_options(Command command, bool with_renderings);
  /// Errors: std::runtime_error when one cannot be written.
  void open();
  void write(const report::Document& document);

  /// The paths that were given.
  std::vector<std::string> paths() const;
  /// Instead of write(): puts there what was written elsewhere, by path.
  void put(const std::map<std::string, std::string>& contents);

 private:
  std::unique_ptr<report::OutputFile> json_;
  std::unique_ptr<report::OutputFile> junit_;
  std::unique_ptr<report::OutputFile> html_;
  std::unique_ptr<report::OutputFile> markdown_;
};

/// A document with the tool's version, the environment, NIC and topology.
report::Document new_document(const std::string& nic, const std::string& topology);

}  // namespace plugfest::cli
