// The files that receive the results of a command.
#pragma once

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fabric/topology/graph.h"
#include "harness/cli/command_line.h"
#include "harness/report/output_file.h"
#include "harness/report/results.h"

namespace plugfest::cli {

/// --json, --junit, --html, --markdown, --badge. Open the files before the work starts and write them when it has
/// ended, also if a signal ended it early.
class Outputs {
 public:
  Outputs();

  /// `with_renderings`: all options; else --json alone.
  void add_options(Command command, bool with_renderings);
  /// Errors: std::runtime_error if a file cannot be written.
  void open();
  void write(const report::Document& document);

  /// Where text for people goes: standard output, or standard error if the user wants results on standard output.
  std::FILE* text_stream() const;
  /// The paths that the user gave.
  std::vector<std::string> paths() const;
  /// Writes contents that a guest has produced, by path. Replaces write().
  void write_contents(const std::map<std::string, std::string>& contents);

 private:
  struct Output {
    std::string option;
    std::string help;
    std::string (*render)(const report::Document&);
    report::OutputFile::Mode mode = report::OutputFile::Mode::kReplace;
    std::string path = {};
    std::unique_ptr<report::OutputFile> file = nullptr;
  };
  std::vector<Output> outputs_;
};

/// Makes the folder that the user gave with `option`, if it is absent, and returns its path from the root; "" for "".
/// Errors: std::runtime_error.
std::string make_folder(const std::string& option, const std::string& path);

/// Returns a document with the tool's version, this machine's environment, the NIC kind and the topology.
report::Document new_document(const std::string& nic, const std::string& topology);

/// Returns the nodes and links of `graph`, for reports.
report::FabricRecord fabric_record(const topology::Graph& graph);

}  // namespace plugfest::cli
