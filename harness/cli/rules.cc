// plugfest rules: prints the rules.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "conformance/rules/rule.h"
#include "fabric/system/text.h"
#include "harness/cli/command.h"
#include "harness/cli/rule_page.h"
#include "harness/report/output_file.h"
#include "harness/report/text.h"
#include "harness/wire/json.h"

namespace plugfest::cli {
namespace {

constexpr std::size_t kIndent = 4;

struct Arguments {
  std::vector<std::string> patterns;
  std::string json;
  std::string markdown;
  bool verbose = false;
};

/// Prints the names that --rule accepts for sets of rules: "@smoke", and the parts of the contract.
void print_groups(const std::vector<const conformance::Rule*>& rules) {
  fmt::print("\ngroups, for --rule:\n");
  for (const conformance::Group& group : conformance::groups()) {
    fmt::print("{:<7} {}: {}\n", group.name, group.title, counted(group.rules.size(), "rule"));
  }
  for (auto rule = rules.begin(); rule != rules.end();) {
    const std::string_view letters = (*rule)->group();
    const auto next = std::find_if(rule, rules.end(), [&](const auto* other) { return other->group() != letters; });
    fmt::print("{:<7} {}: {}\n", fmt::format("'{}-*'", letters), conformance::group_title(letters),
               counted(static_cast<std::size_t>(next - rule), "rule"));
    rule = next;
  }
}

int print_rules(const Arguments& arguments) {
  const auto selected = conformance::select_rules(conformance::catalogue(), arguments.patterns);
  if (!arguments.json.empty()) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const conformance::Rule* rule : selected) {
      json.push_back({{"id", rule->id},
                      {"level", std::string(1, conformance::level_letter(rule->level))},
                      {"versions", rule->apis.describe()},
                      {"title", rule->clause.title},
                      {"clause", rule->clause.text},
                      {"source", rule->clause.source},
                      {"why", rule->clause.why},
                      {"check", rule->clause.check},
                      {"blind", rule->clause.blind}});
      for (const conformance::RealFault& fault : rule->clause.faults) {
        json.back()["faults"].push_back({{"what", fault.what}, {"url", fault.url()}});
      }
    }
    report::OutputFile(arguments.json).write(wire::json_text(json));
    if (report::is_standard_output(arguments.json)) return 0;
  }
  if (!arguments.markdown.empty()) {
    report::OutputFile(arguments.markdown).write(rules_document(conformance::catalogue(), mutants_by_rule()));
    if (report::is_standard_output(arguments.markdown)) return 0;
  }
  for (const conformance::Rule* rule : selected) {
    fmt::print("{:<5} [{}] {}", rule->id, conformance::level_letter(rule->level), rule->clause.title);
    const std::string versions = rule->apis.describe();
    fmt::print("{}\n", versions == "all versions" ? "" : fmt::format(" ({})", versions));
    if (arguments.verbose) {
      fmt::print("    {}\n    source: {}\n", report::wrapped(rule->clause.text, kIndent),
                 report::wrapped(rule->clause.source, kIndent + 8));
    }
  }
  if (arguments.patterns.empty()) print_groups(selected);
  return 0;
}

}  // namespace

void add_rules(Command program) {
  Command command = program.add_subcommand("rules", "Print the rules with their levels and sources");
  auto arguments = std::make_shared<Arguments>();
  command
      .add_option("-r,--rule", arguments->patterns,
                  "Only these rules: CN-06, a pattern such as 'CN-*', or the group @smoke; repeatable")
      .type_name("PATTERN");
  command.add_flag("-v,--verbose", arguments->verbose, "Also print the text and source of each clause");
  command.add_option("--markdown", arguments->markdown, "Also write all rules to FILE as Markdown: docs/rules.md")
      .type_name("FILE");
  command.add_option("--json", arguments->json, "Also write the rules to FILE as JSON").type_name("FILE");
  command.set_body([arguments] { return print_rules(*arguments); });
}

}  // namespace plugfest::cli
