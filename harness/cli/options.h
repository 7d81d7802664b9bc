// Options that several subcommands share.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/rules/rule.h"
#include "fabric/topology/graph.h"
#include "harness/bed/run_bed.h"
#include "harness/cli/command_line.h"
#include "harness/faults/script.h"
#include "harness/report/console.h"
#include "harness/report/known_findings.h"
#include "harness/report/output_file.h"
#include "harness/report/results.h"

namespace plugfest::cli {

/// --verbose, --quiet, --durations, --color: the amount and style of output.
class ConsoleOption {
 public:
  /// `with_details`: adds all options; otherwise only --color.
  void add_options(Command command, bool with_details);
  /// The style for text on `stream`. Errors: std::runtime_error if options contradict each other.
  report::Style style(std::FILE* stream = stdout) const;
  bool quiet() const { return quiet_; }

 private:
  bool verbose_ = false;
  bool quiet_ = false;
  int durations_ = 0;
  std::string color_ = "auto";
};

void add_plugin_option(Command command, std::string& plugin);
void add_rule_option(Command command, std::vector<std::string>& patterns);
/// Adds --timeout-scale. `limit`: the time limit that it multiplies.
void add_timeout_option(Command command, double& scale, const std::string& limit);
/// Adds --topology. `otherwise`: describes the default in --help.
void add_topology_option(Command command, std::string& topology, const std::string& otherwise,
                         const OptionProperties& properties = {});
/// Adds --nic, --kernel and --allow-host-changes.
void add_nic_options(Command command, bed::RunOptions& options);
/// Adds the options of add_nic_options(), and --topology, --fabric, --device and --oob.
void add_bed_options(Command command, bed::RunOptions& options);
/// The seed that the user gave, or a random one.
std::uint64_t chosen_seed(const std::optional<std::uint64_t>& seed);

/// --faults: the faults to inject during a run.
class FaultOption {
 public:
  void add_option(Command command);
  /// Parses the option. `seed`: the seed of faults that specify none. Errors: std::runtime_error, including if it names
  /// a rule that is not among `rules`, or a host or link that is not in `graph`.
  void read(const topology::Graph& graph, const std::vector<const conformance::Rule*>& rules, std::uint64_t seed);
  /// Null if the option was not given.
  const faults::Script* script() const { return script_ ? &*script_ : nullptr; }
  /// The option as the user gave it; may be empty.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::optional<faults::Script> script_;
};

/// --json, --junit, --html, --markdown, --badge. Open the files before the work starts and write them when it has
/// ended, even if a signal ended it early.
class Outputs {
 public:
  Outputs();

  /// `with_renderings`: adds all options; otherwise only --json.
  void add_options(Command command, bool with_renderings);
  /// Errors: std::runtime_error if a file cannot be written.
  void open();
  void write(const report::Document& document);

  /// The stream for messages: standard output, or standard error if results go to standard output.
  std::FILE* text_stream() const;
  std::vector<std::string> paths() const;
  /// Writes contents produced in a guest, by path. Replaces write().
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

/// Creates the folder that the user gave with `option`, if it is absent, and returns its absolute path; "" for "".
/// Errors: std::runtime_error.
std::string make_folder(const std::string& option, const std::string& path);

/// Returns a document with the tool's version, this machine's environment, the NIC kind and the topology.
report::Document new_document(const std::string& nic, const std::string& topology);

/// Returns the nodes and links of `graph`, for reports.
report::FabricRecord fabric_record(const topology::Graph& graph);

/// The options of commands that test a plugin by rules: --plugin, --rule, --baseline, --strict, --seed,
/// --timeout-scale.
struct RuleOptions {
  std::string plugin;
  std::vector<std::string> patterns;
  std::string baseline;
  bool strict = false;
  std::optional<std::uint64_t> seed;
  double timeout_scale = 1;

  /// `call_limit`: the time limit of calls, for the help text.
  void add_options(Command command, const std::string& call_limit);
  /// The findings of --baseline. Errors: std::runtime_error, including if it names an unknown rule.
  report::KnownFindings known_findings() const;
};

}  // namespace plugfest::cli
