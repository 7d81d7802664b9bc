// plugfest verdict: prints the verdicts of some rules in a results.json. CTest tests that share one run call it.
#include "harness/report/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/report/console.h"
#include "harness/report/json.h"

namespace plugfest::cli {
namespace {

// Exit code if no selected rule was judged; SKIP_RETURN_CODE in CMake.
constexpr int kSkipped = 77;

struct Arguments {
  std::string file;
  std::vector<std::string> patterns;
  ConsoleOption console;
};

// Whether `pattern` selects the rule: "CN-06", "CN-*", or the group "CN".
bool selects(const std::string& pattern, const std::string& id) {
  return fnmatch(pattern.c_str(), id.c_str(), 0) == 0 || id.starts_with(pattern + "-");
}

// Keeps only the selected rules in `runs`. Errors: std::runtime_error if a pattern selects none.
void select(std::vector<report::Run>& runs, const Arguments& arguments) {
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

int print_verdict(const Arguments& arguments) {
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
  const std::size_t not_judged = summary.of(report::Verdict::kSkip) + summary.of(report::Verdict::kNotApplicable);
  return summary.total() != 0 && not_judged == summary.total() ? kSkipped : summary.exit_code();
}

}  // namespace

void add_verdict(Command program) {
  Command command = program.add_subcommand("verdict", "Print the verdicts of some rules in a results.json",
                                           "Exit code: as that of the run with these rules alone; 77 if none of them "
                                           "was judged, because all were skipped or do not apply.");
  auto arguments = std::make_shared<Arguments>();
  command.add_option("FILE", arguments->file, "File that run --json has written", {.required = true});
  command.add_option("RULE", arguments->patterns,
                     "CN-06, a pattern such as 'CN-*', or a group, CN; default: all rules");
  arguments->console.add_options(command, true);
  command.set_body([arguments] { return print_verdict(*arguments); });
}

}  // namespace plugfest::cli
