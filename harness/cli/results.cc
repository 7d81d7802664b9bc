// plugfest report, diff and verdict: read results.json files again.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <stdexcept>

#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/report/comparison.h"
#include "harness/report/formats.h"
#include "harness/report/verdict.h"
#include "harness/trace/packets.h"

namespace plugfest::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> files;
  std::string output = "-";
  std::vector<std::string> captures;  // RULE=FILE
};

// Adds the packets of a file to the rules of that name.
void add_capture(std::vector<report::Document>& documents, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos)
    throw std::runtime_error(fmt::format("--pcap \"{}\": expected RULE=FILE, as in CN-06=cn06.pcapng", text));
  const std::string id = text.substr(0, equals);
  const report::Capture capture = trace::read_packets(text.substr(equals + 1), trace::kMaxPackets);
  bool found = false;
  for (report::Document& document : documents) {
    for (report::Run& run : document.runs) {
      for (report::RuleResult& rule : run.rules) {
        if (rule.id != id) continue;
        rule.capture = capture;
        found = true;
      }
    }
  }
  if (!found) throw std::runtime_error(fmt::format("--pcap \"{}\": no result has a rule {}", text, id));
}

int write_report(const ReportArguments& arguments) {
  std::vector<report::Document> documents;
  for (const std::string& file : arguments.files) documents.push_back(report::read_results_or_curves(file));
  for (const std::string& capture : arguments.captures) add_capture(documents, capture);
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
      program.add_subcommand("report", "Create one HTML page from results.json files",
                             "The page needs no other file and no network. Several runs are also shown as a matrix of "
                             "rules and runs. Figures of bench net, coll and soak are drawn as curves.");
  auto arguments = std::make_shared<ReportArguments>();
  command.add_option("FILE", arguments->files,
                     "results.json of a certification, or what run, bench net, coll or soak has written with --json",
                     {.required = true});
  command.add_option("-o,--output FILE", arguments->output, "Write the page to FILE; default: standard output");
  command.add_option("--pcap RULE=FILE", arguments->captures,
                     "Show the packets of this pcapng file with a rule; repeatable; not needed after run --pcap");
  command.set_body([arguments] { return write_report(*arguments); });
}

void add_diff(Command program) {
  Command command = program.add_subcommand(
      "diff", "Print the verdicts that differ between two results.json files",
      "Exit code: 0 if no verdict is worse, 1 if one is, or if a rule that passed is no longer tested.");
  auto arguments = std::make_shared<DiffArguments>();
  command.add_option("BEFORE", arguments->before, "The earlier file of run --json", {.required = true});
  command.add_option("AFTER", arguments->after, "The later file of run --json", {.required = true});
  command.set_body([arguments] { return print_difference(*arguments); });
}

namespace {

// Exit code if no selected rule was tested; SKIP_RETURN_CODE in CMake.
constexpr int kSkipped = 77;

struct VerdictArguments {
  std::string file;
  std::vector<std::string> patterns;
  ConsoleOption console;
};

// Whether `pattern` selects the rule: "CN-06", "CN-*", or the group "CN".
bool selects(const std::string& pattern, const std::string& id) {
  return fnmatch(pattern.c_str(), id.c_str(), 0) == 0 || id.starts_with(pattern + "-");
}

// Keeps only the selected rules in `runs`. Errors: std::runtime_error if a pattern selects none.
void select(std::vector<report::Run>& runs, const VerdictArguments& arguments) {
  std::set<std::string> groups;
  for (const std::string& pattern : arguments.patterns) {
    bool found = false;
    for (const report::Run& run : runs) {
      for (const report::RuleResult& rule : run.rules) {
        found |= selects(pattern, rule.id);
        groups.insert(rule.id.substr(0, rule.id.find('-')));
      }
    }
    if (!found) {
      throw std::runtime_error(
          fmt::format("{}: no rule {}: it has rules of {}", arguments.file, pattern, fmt::join(groups, ", ")));
    }
  }
  for (report::Run& run : runs) {
    std::erase_if(run.rules, [&](const report::RuleResult& rule) {
      return std::none_of(arguments.patterns.begin(), arguments.patterns.end(),
                          [&](const std::string& pattern) { return selects(pattern, rule.id); });
    });
  }
}

int print_verdict(const VerdictArguments& arguments) {
  std::vector<report::Run> runs = report::read_results(arguments.file).runs;
  if (!arguments.patterns.empty()) select(runs, arguments);
  report::Console console(stdout, arguments.console.style(stdout));
  for (report::Run& run : runs) {
    run.seconds = 0;
    for (const report::RuleResult& rule : run.rules) {
      run.seconds += rule.seconds;
      console.rule(rule);
    }
    console.end(run);
  }
  const report::Summary summary = report::summarize(runs);
  const std::size_t not_tested = summary.of(report::Verdict::kSkip) + summary.of(report::Verdict::kNotApplicable);
  return summary.total() != 0 && not_tested == summary.total() ? kSkipped : summary.exit_code();
}

}  // namespace

void add_verdict(Command program) {
  Command command = program.add_subcommand("verdict", "Print the verdicts of some rules in a results.json",
                                           "Exit code: as for a run of only these rules; 77 if all of them were "
                                           "skipped or do not apply.");
  auto arguments = std::make_shared<VerdictArguments>();
  command.add_option("FILE", arguments->file, "File that run --json has written", {.required = true});
  command.add_option("RULE", arguments->patterns,
                     "CN-06, a pattern such as 'CN-*', or a group, CN; default: all rules");
  arguments->console.add_options(command, true);
  command.set_body([arguments] { return print_verdict(*arguments); });
}

void add_schema(Command program) {
  program
      .add_subcommand("schema", "Print the JSON Schema of results.json",
                      "The schema describes the files of run --json and mutants --json. It follows draft 2020-12.")
      .set_body([] {
        fmt::print("{}", report::json_schema());
        return 0;
      });
}

}  // namespace plugfest::cli
