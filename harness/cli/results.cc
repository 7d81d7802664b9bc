// plugfest report and plugfest diff: read results.json files again.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "harness/cli/command.h"
#include "harness/report/comparison.h"
#include "harness/report/formats/json_read.h"
#include "harness/report/output_file.h"
#include "harness/report/web/html.h"

namespace plugfest::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> files;
  std::string output = "-";
};

int write_report(const ReportArguments& arguments) {
  std::vector<report::Document> documents;
  for (const std::string& file : arguments.files) documents.push_back(report::read_results_or_curves(file));
  report::OutputFile(arguments.output).write(report::to_html(documents));
  return 0;
}

struct DiffArguments {
  std::string before;
  std::string after;
};

int print_difference(const DiffArguments& arguments) {
  const report::Document before = report::read_results(arguments.before);
  const report::Comparison comparison = report::compare(before, report::read_results(arguments.after));
  fmt::print("{}", report::describe(comparison));
  return comparison.any_worse() ? 1 : 0;
}

}  // namespace

void add_report(Command program) {
  Command command =
      program.add_subcommand("report", "Make one HTML page of results.json files",
                             "The page needs no other file and no network. Several runs are also shown as a "
                             "matrix of rules and runs. Figures of bench net and coll are drawn as curves.");
  auto arguments = std::make_shared<ReportArguments>();
  command.add_option("FILE", arguments->files, "What run, certify, bench net or coll has written with --json")
      .type_name("FILE")
      .required();
  command.add_option("-o,--output", arguments->output, "Write the page to FILE; default: standard output")
      .type_name("FILE");
  command.set_body([arguments] { return write_report(*arguments); });
}

void add_diff(Command program) {
  Command command = program.add_subcommand(
      "diff", "Say which verdicts changed between two results.json files",
      "Exit code: 0 if no verdict is worse, 1 if one is, or if a rule that passed is no longer judged.");
  auto arguments = std::make_shared<DiffArguments>();
  command.add_option("BEFORE", arguments->before, "What run --json wrote first").type_name("FILE").required();
  command.add_option("AFTER", arguments->after, "What it wrote later").type_name("FILE").required();
  command.set_body([arguments] { return print_difference(*arguments); });
}

}  // namespace plugfest::cli
