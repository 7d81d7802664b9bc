#include "harness/cli/options/outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "harness/report/formats.h"
#include "harness/report/json.h"
#include "harness/report/web/html.h"
#include "version.h"

namespace plugfest::cli {

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
  for (Output& output : outputs_) command.add_option(output.option, output.path, output.help).type_name("FILE");
}

void Outputs::open() {
  for (Output& output : outputs_) {
    if (!output.path.empty()) output.file = std::make_unique<report::OutputFile>(output.path, output.mode);
  }
}

void Outputs::write(const report::Document& document) {
  for (const Output& output : outputs_) {
    if (output.file) output.file->write(output.render(document));
  }
}

std::FILE* Outputs::text_stream() const {
  const std::vector<std::string> given = paths();
  return std::any_of(given.begin(), given.end(), report::is_standard_output) ? stderr : stdout;
}

std::vector<std::string> Outputs::paths() const {
  std::vector<std::string> given;
  for (const Output& output : outputs_) {
    if (!output.path.empty()) given.push_back(output.path);
  }
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

}  // namespace plugfest::cli
