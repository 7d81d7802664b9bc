#include "harness/cli/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <system_error>

#include "harness/report/formats.h"
#include "version.h"

namespace plugfest::cli {

void ConsoleOption::add_options(Command command, bool with_details) {
  if (with_details) {
    command.add_flag("-v,--verbose", verbose_, "Print each rule, and the details of each failure", {.again = false});
    command.add_flag("-q,--quiet", quiet_, "Print only the failed rules and the summary",
                     {.excludes = "--verbose", .again = false});
    command.add_option("--durations N", durations_, "Also print the N slowest rules",
                       {.at_most = 1000, .again = false});
  }
  command.add_option("--color WHEN", color_,
                     "auto, always or never; auto uses color on a terminal or if FORCE_COLOR is set and not 0, unless "
                     "NO_COLOR is set",
                     {.one_of = {"auto", "always", "never"}, .again = false});
}

report::Style ConsoleOption::style(std::FILE* stream) const {
  report::Style style = report::Style::of(stream, color_);
  if (verbose_) style.detail = report::Detail::kVerbose;
  if (quiet_) style.detail = report::Detail::kQuiet;
  if (quiet_) style.progress = false;
  style.durations = static_cast<std::size_t>(durations_);
  return style;
}

void add_plugin_option(Command command, std::string& plugin) {
  command.add_option("-p,--plugin PLUGIN", plugin,
                     "A libnccl-net.so, a name as in NCCL_NET_PLUGIN, nccl:IB, nccl:Socket or nccl:GIN; default: the "
                     "bundled mesh plugin");
}

void add_rule_option(Command command, std::vector<std::string>& patterns) {
  command.add_option("-r,--rule PATTERN", patterns,
                     "Only these rules: CN-06, a pattern such as 'CN-*', or the set @smoke; repeatable");
}

void add_timeout_option(Command command, double& scale, const std::string& limit) {
  command.add_option("--timeout-scale X", scale, "Multiply the time limit of " + limit, {.at_most = 1e6});
}

void add_topology_option(Command command, std::string& topology, const std::string& otherwise,
                         const OptionProperties& properties) {
  command.add_option("-t,--topology TOPOLOGY", topology,
                     "Hosts and links to build: a name or a YAML file; default: " + otherwise, properties);
}

void add_nic_options(Command command, bed::RunOptions& options) {
  command.add_option("--nic KIND", options.nic, "Kind of NIC: " + bed::describe_nic_kinds());
  command.add_option(
      "--kernel PATH", options.nic_options.kernel,
      "With --nic vm: a kernel image, or a folder with boot/ and lib/modules/; default: the distribution's");
  command.add_flag("--allow-host-changes", options.nic_options.allow_host_changes,
                   "With --nic rxe: load the kernel module for the duration of the run");
}

void add_bed_options(Command command, bed::RunOptions& options) {
  add_topology_option(command, options.topology, "triangle");
  command.add_option("--fabric NAME", options.fabric, "Use a background fabric; see fabric up",
                     {.excludes = "--topology"});
  command.add_option("--device NAME=HOST/INTERFACE", options.devices,
                     "Assign the plugin's device NAME to an interface, as in foo0=a/eth0, if the run's header shows "
                     "another one; repeatable");
  command.add_flag(
      "--oob", options.out_of_band,
      "Give each host an interface oob0 on one shared network without NICs; nccl:IB and nccl:Socket always have it");
  add_nic_options(command, options);
}

std::uint64_t chosen_seed(const std::optional<std::uint64_t>& seed) { return seed ? *seed : std::random_device{}(); }

void FaultOption::add_option(Command command) {
  command.add_option("--faults FAULTS", text_,
                     "Faults to inject: loss=1%,delay=1ms,seed=7 (also duplicate, reorder, corrupt) on every link, or "
                     "a YAML file, see docs/faults.md");
}

void FaultOption::read(const topology::Graph& graph, const std::vector<const conformance::Rule*>& rules,
                       std::uint64_t seed) {
  if (text_.empty()) return;
  faults::Script script = faults::read_script(text_, graph);
  std::vector<std::string> selected;
  for (const conformance::Rule* rule : rules) selected.push_back(rule->id);
  script.assign_seeds(seed);  // before the selection, which must not change the seeds
  faults::select_entries(script, selected, conformance::catalog().ids());
  script_ = std::move(script);
}

Outputs::Outputs() {
  outputs_.push_back({"--json", "Write the results to FILE as JSON", report::to_json});
  outputs_.push_back({"--junit", "Write the results to FILE as JUnit XML", report::to_junit});
  outputs_.push_back({"--html", "Write a report to FILE as one HTML page", report::to_html});
  outputs_.push_back({"--markdown", "Append a summary to FILE as Markdown, as for $GITHUB_STEP_SUMMARY",
                      report::to_markdown, report::OutputFile::Mode::kAppend});
  outputs_.push_back({"--badge", "Write a badge for shields.io to FILE, as JSON", report::to_badge});
}

void Outputs::add_options(Command command, bool with_renderings) {
  if (!with_renderings) outputs_.resize(1);
  for (Output& output : outputs_)
    command.add_option(output.option + " FILE", output.path, output.help, {.again = false});
}

void Outputs::open() {
  for (Output& output : outputs_) output.file = report::open_output(output.path, output.mode);
}

void Outputs::write(const report::Document& document) {
  for (const Output& output : outputs_)
    if (output.file) output.file->write(output.render(document));
}

std::FILE* Outputs::text_stream() const {
  const std::vector<std::string> given = paths();
  return std::any_of(given.begin(), given.end(), report::is_standard_output) ? stderr : stdout;
}

std::vector<std::string> Outputs::paths() const {
  std::vector<std::string> given;
  for (const Output& output : outputs_)
    if (!output.path.empty()) given.push_back(output.path);
  return given;
}

void Outputs::write_contents(const std::map<std::string, std::string>& contents) {
  for (const Output& output : outputs_) {
    const auto content = contents.find(output.path);
    if (output.file && content != contents.end()) output.file->write(content->second);
  }
}

std::string make_folder(const std::string& option, const std::string& path) {
  if (path.empty()) return "";
  std::error_code error;
  std::filesystem::create_directories(path, error);
  std::string from_root;
  if (!error) from_root = std::filesystem::canonical(path, error).string();
  if (error) throw std::runtime_error(fmt::format("{} {}: {}", option, path, error.message()));
  return from_root;
}

report::Document new_document(const std::string& nic, const std::string& topology) {
  report::Document document;
  document.version = PLUGFEST_VERSION;
  document.commit = PLUGFEST_COMMIT;
  document.environment = report::this_environment();
  document.environment.nic = nic;
  document.environment.topology = topology;
  return document;
}

report::FabricRecord fabric_record(const topology::Graph& graph) {
  report::FabricRecord record;
  for (const topology::Host& host : graph.hosts) record.nodes.push_back({.name = host.name});
  for (const topology::Switch& one : graph.switches) record.nodes.push_back({.name = one.name, .tier = one.tier});
  const auto name = [&](const topology::LinkEnd& end) {
    return graph.node_name(end) + "." + graph.interface(end).name;
  };
  for (const topology::Link& link : graph.links) {
    record.links.push_back({.from = name(link.ends[0]),
                            .to = name(link.ends[1]),
                            .subnet = link.subnet.text(),
                            .rate_bits_per_second = link.rate_bits_per_second,
                            .delay = link.delay_us / 1e6});
  }
  return record;
}

void RuleOptions::add_options(Command command, const std::string& call_limit) {
  add_plugin_option(command, plugin);
  add_rule_option(command, patterns);
  command.add_option("--baseline FILE", baseline,
                     "Waive these known findings: a YAML or JSON list of rule, subject, reason, expires",
                     {.again = false});
  command.add_flag("--strict", strict, "Count a broken rule of level S as a failure, not as a warning");
  command.add_option("--seed N", seed, "Repeat the random choices of an earlier run");
  add_timeout_option(command, timeout_scale, "calls, " + call_limit);
}

report::KnownFindings RuleOptions::known_findings() const {
  if (baseline.empty()) return {};
  report::KnownFindings known = report::KnownFindings::read(baseline);
  known.require_rules(conformance::catalog().ids());
  return known;
}

}  // namespace plugfest::cli
