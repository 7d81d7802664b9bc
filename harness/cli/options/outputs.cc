#include "harness/cli/options/outputs.h"

#include "harness/report/formats/html.h"
#include "harness/report/formats/json.h"
#include "harness/report/formats/junit.h"
#include "harness/report/formats/markdown.h"
#include "version.h"

namespace plugfest::cli {

void Outputs::add_options(Command command, bool with_renderings) {
  command.add_option("--json", json_path, "Write the results there as JSON").type_name("FILE");
  if (!with_renderings) return;
  command.add_option("--junit", junit_path, "Write the results there as JUnit XML").type_name("FILE");
  command.add_option("--html", html_path, "Write a report there as one HTML page").type_name("FILE");
  command.add_option("--markdown", markdown_path, "Write a summary there as Markdown, as for $GITHUB_STEP_SUMMARY")
      .type_name("FILE");
}

void Outputs::open() {
  if (!json_path.empty()) json_ = std::make_unique<report::OutputFile>(json_path);
  if (!junit_path.empty()) junit_ = std::make_unique<report::OutputFile>(junit_path);
  if (!html_path.empty()) html_ = std::make_unique<report::OutputFile>(html_path);
  if (!markdown_path.empty()) markdown_ = std::make_unique<report::OutputFile>(markdown_path);
}

void Outputs::write(const report::Document& document) {
  if (json_) json_->write(report::to_json(document));
  if (junit_) junit_->write(report::to_junit(document));
  if (html_) html_->write(report::to_html(document));
  if (markdown_) markdown_->write(report::to_markdown(document));
}

std::vector<std::string> Outputs::paths() const {
  std::vector<std::string> given;
  for (const std::string& path : {json_path, junit_path, html_path, markdown_path}) {
    if (!path.empty()) given.push_back(path);
  }
  return given;
}

void Outputs::put(const std::map<std::string, std::string>& contents) {
  const auto put_one = [&](const std::string& path, report::OutputFile* file) {
    const auto content = contents.find(path);
    if (file != nullptr && content != contents.end()) file->write(content->second);
  };
  put_one(json_path, json_.get());
  put_one(junit_path, junit_.get());
  put_one(html_path, html_.get());
  put_one(markdown_path, markdown_.get());
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

}  // namespace plugfest::cli
