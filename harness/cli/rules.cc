// plugfest rules and explain: lists of rules, and the page of a rule, which is also its section of docs/rules.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "conformance/mutants/kill.h"
#include "fabric/system/process.h"
#include "fabric/system/text.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/report/text.h"
#include "harness/report/verdict.h"
#include "harness/wire/json.h"

namespace plugfest::cli {
namespace {

using conformance::RealFault;
using conformance::Rule;

// Names of the mutants that each rule must kill, by the rule's id.
using MutantsByRule = std::map<std::string, std::vector<std::string>, std::less<>>;

std::string versions(const Rule& rule) {
  return rule.apis.describe() + (rule.apis.built_ins ? "" : "; libraries only, not transports that NCCL contains");
}

// The condition without which a run skips the rule; "" if every run meets it.
std::string needs(const Rule& rule) {
  const conformance::Declaration& declaration = rule.declaration;
  if (declaration.gpu) return "a CUDA GPU; --emulate-gpu emulates its memory";
  if (declaration.runs_nccl) return "NCCL 2.28.9; run it with --with-nccl, or name it with --rule";
  if (declaration.thorough) return "the option --thorough, because it takes a minute or gigabytes of memory";
  return declaration.ranks > 2 ? fmt::format("{} hosts that all reach each other", declaration.ranks) : "";
}

const std::vector<std::string>& killed_by(const Rule& rule, const MutantsByRule& mutants) {
  static const std::vector<std::string> none;
  const auto found = mutants.find(rule.id);
  return found == mutants.end() ? none : found->second;
}

// Escapes the characters that Markdown would interpret.
std::string markdown(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("*<[|`\\").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string markdown_item(std::string_view label, std::string_view text) {
  return text.empty() ? "" : fmt::format("- **{}:** {}\n", label, text);
}

// The anchor that GitHub gives to the heading of a rule: "cn-06-m-connect-never-waits-for-the-peer".
std::string anchor(const Rule& rule) {
  std::string anchor;
  for (const char c : fmt::format("{} {} {}", rule.id, conformance::level_letter(rule.level), rule.declaration.title))
    if (c == ' ')
      anchor += '-';
    else if (c == '-' || c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0)
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return anchor;
}

std::string markdown_section(const Rule& rule, const MutantsByRule& mutants) {
  const conformance::Declaration& declaration = rule.declaration;
  std::string faults;
  for (const RealFault& fault : declaration.faults) {
    faults +=
        fmt::format("{}{} ([{}]({}))", faults.empty() ? "" : "; ", markdown(fault.what), fault.reference, fault.url());
  }
  std::string names;
  for (const std::string& name : killed_by(rule, mutants))
    names += fmt::format("{}`{}`", names.empty() ? "" : ", ", name);
  return fmt::format("### {} \\[{}] {}\n\n{}\n\n", rule.id, conformance::level_letter(rule.level),
                     markdown(declaration.title), markdown(declaration.text)) +
         markdown_item("Applies to", versions(rule)) + markdown_item("Why", markdown(declaration.why)) +
         markdown_item("Check", markdown(declaration.check)) +
         markdown_item("Cannot see", markdown(declaration.blind)) + markdown_item("Mutants", names) +
         markdown_item("Bugs in released software", faults) + markdown_item("Source", markdown(declaration.source)) +
         "\n";
}

// Nothing if there are no mutants, as in an installation. Errors: std::runtime_error if their library cannot be loaded.
std::optional<MutantsByRule> mutants_by_rule() {
  if (!std::filesystem::exists(mutants::default_folder())) return std::nullopt;
  MutantsByRule result;
  for (const mutants::Mutant& mutant : mutants::load_mutants(mutants::default_folder()))
    for (const std::string& id : mutant.breaks) result[id].push_back(mutant.name);
  return result;
}

// Tells how to see the mutants of `rule` if none are installed.
std::string mutants_elsewhere(const Rule& rule) {
  const std::string in_clone = "scripts/plugfest", program = program_as_typed();
  if (program.ends_with(in_clone)) return fmt::format("not built here: {} mutants --list builds them", program);
  return fmt::format("not here: {} explain {} in a clone of the repository names them", in_clone, rule.id);
}

// The page for a terminal of 80 columns. `mutants`: nothing if they are not known here.
std::string console_page(const Rule& rule, const std::optional<MutantsByRule>& mutants) {
  constexpr std::size_t kLabel = 12;
  const conformance::Declaration& declaration = rule.declaration;
  std::string page =
      report::wrapped(fmt::format("{} [{}] {}", rule.id, conformance::level_letter(rule.level), declaration.title), 10);
  page += fmt::format("\n\n  {}\n\n", report::wrapped(declaration.text, 2));
  auto add = [&](std::string_view label, std::string_view text) {
    if (!text.empty()) page += fmt::format("{:<{}}{}\n", label, kLabel, report::wrapped(text, kLabel));
  };
  add("applies to", versions(rule));
  add("needs", needs(rule));
  add("why", declaration.why);
  add("check", declaration.check);
  add("cannot see", declaration.blind);
  add("mutants", mutants ? fmt::format("{}", fmt::join(killed_by(rule, *mutants), ", ")) : mutants_elsewhere(rule));
  for (std::size_t i = 0; i < declaration.faults.size(); ++i) {
    add(i == 0 ? "real bugs" : "", declaration.faults[i].what);
    add("", declaration.faults[i].url());
  }
  add("source", declaration.source);
  add("run", program_as_typed() + " run --rule " + rule.id);
  return page;
}

// Clauses of the contract that a run cannot check.
constexpr std::string_view kUnchecked =
    "## Clauses without a rule\n\n"
    "- DP-19 is about maxCollBytes of CollNet. CO-20 checks its range.\n"
    "- ER-08, IN-19, LD-14 and LD-15 describe what NCCL does after an error, at the end of a communicator, with "
    "several "
    "plugins and\n  with NCCL_NET_PLUGIN_REF_COUNT. Other rules check everything that these clauses demand of a single "
    "plugin.\n"
    "- IN-15 is about init of GIN on several threads. No rule does that.\n"
    "- PF-08 is about a callback that is NULL. IN-14 checks it.\n"
    "- TH-01 and TH-07 state which thread of NCCL makes which call. All rules use these threads unless their text says "
    "otherwise.\n"
    "- XF-21: plugins of v6 to v8 do not get the mark of optional completion. Only XF-19 and XF-20 pass it, and only "
    "from v9 on.\n";

// docs/rules.md: all rules of the catalog, with "?" for the number of mutants if they are not known here.
std::string rules_document(const conformance::Catalog& catalog, const std::optional<MutantsByRule>& known) {
  const MutantsByRule mutants = known.value_or(MutantsByRule{});
  std::string overview, sections;
  std::string_view group;
  for (const Rule& rule : catalog.rules()) {
    if (rule.group() != group) {
      group = rule.group();
      sections += fmt::format("## {}: {}\n\n", group, conformance::group_title(group));
    }
    sections += markdown_section(rule, mutants);
    overview +=
        fmt::format("| [{}](#{}) | {} | {} | {} |\n", rule.id, anchor(rule), conformance::level_letter(rule.level),
                    markdown(rule.declaration.title), known ? fmt::to_string(killed_by(rule, mutants).size()) : "?");
  }
  while (sections.ends_with("\n\n")) sections.pop_back();
  return fmt::format(
      "# The rules\n\n"
      "`plugfest rules --markdown docs/rules.md` writes this file from the declarations of the rules in "
      "`conformance`;\na test fails while it is stale. `plugfest explain CN-06` prints one section.\n\n"
      "Levels: M: a released NCCL misbehaves with a plugin that breaks the rule. S: a document demands it, or a "
      "program other than\na released NCCL needs it; a broken rule is a warning. I: the run only records what the rule "
      "observes.\n\nA mutant is a plugin with one deliberate bug. The last column says how many mutants the rule "
      "finds.\n\n"
      "| rule | level | title | mutants |\n|---|---|---|---|\n{}\n{}\n{}",
      overview, kUnchecked, sections);
}

constexpr std::size_t kIndent = 4;

struct RulesArguments {
  std::vector<std::string> patterns;
  std::string json;
  std::string markdown;
  bool verbose = false;
};

// Prints the names that --rule accepts for sets of rules: "@smoke", and the parts of the contract.
void print_groups(const std::vector<const conformance::Rule*>& rules) {
  fmt::print("\ngroups, for --rule:\n");
  for (const conformance::Group& group : conformance::groups())
    fmt::print("{:<7} {}: {}\n", group.name, group.title, counted(group.rules.size(), "rule"));
  for (auto rule = rules.begin(); rule != rules.end();) {
    const std::string_view letters = (*rule)->group();
    const auto next = std::find_if(rule, rules.end(), [&](const auto* other) { return other->group() != letters; });
    fmt::print("{:<7} {}: {}\n", fmt::format("'{}-*'", letters), conformance::group_title(letters),
               counted(static_cast<std::size_t>(next - rule), "rule"));
    rule = next;
  }
}

int print_rules(const RulesArguments& arguments) {
  const auto selected = conformance::select_rules(conformance::catalog(), arguments.patterns);
  if (!arguments.json.empty()) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const conformance::Rule* rule : selected) {
      json.push_back({{"id", rule->id},
                      {"level", std::string(1, conformance::level_letter(rule->level))},
                      {"versions", rule->apis.describe()},
                      {"needs", needs(*rule)},
                      {"title", rule->declaration.title},
                      {"text", rule->declaration.text},
                      {"source", rule->declaration.source},
                      {"why", rule->declaration.why},
                      {"check", rule->declaration.check},
                      {"blind", rule->declaration.blind}});
      for (const conformance::RealFault& fault : rule->declaration.faults)
        json.back()["faults"].push_back({{"what", fault.what}, {"url", fault.url()}});
    }
    report::OutputFile(arguments.json).write(wire::json_text(json));
    if (report::is_standard_output(arguments.json)) return 0;
  }
  if (!arguments.markdown.empty()) {
    report::OutputFile(arguments.markdown).write(rules_document(conformance::catalog(), mutants_by_rule()));
    if (report::is_standard_output(arguments.markdown)) return 0;
  }
  for (const conformance::Rule* rule : selected) {
    fmt::print("{:<5} [{}] {}", rule->id, conformance::level_letter(rule->level), rule->declaration.title);
    const std::string versions = rule->apis.describe();
    fmt::print("{}\n", versions == "all versions" ? "" : fmt::format(" ({})", versions));
    if (arguments.verbose) {
      fmt::print("    {}\n    source: {}\n", report::wrapped(rule->declaration.text, kIndent),
                 report::wrapped(rule->declaration.source, kIndent + 8));
    }
  }
  if (arguments.patterns.empty()) print_groups(selected);
  return 0;
}

int explain(const std::vector<std::string>& patterns) {
  const auto rules = conformance::select_rules(conformance::catalog(), patterns);
  std::optional<MutantsByRule> mutants;
  try {
    mutants = mutants_by_rule();
  } catch (const std::runtime_error&) {
    // Their library is not built, or not of this version: the page says what builds it.
  }
  for (const conformance::Rule* rule : rules)
    fmt::print("{}{}", rule == rules.front() ? "" : "\n", console_page(*rule, mutants));
  return 0;
}

}  // namespace

void add_rules(Command program) {
  Command command = program.add_subcommand("rules", "Print the rules with their levels and sources");
  auto arguments = std::make_shared<RulesArguments>();
  add_rule_option(command, arguments->patterns);
  command.add_flag("-v,--verbose", arguments->verbose, "Also print the text and source of each rule");
  command.add_option("--markdown FILE", arguments->markdown,
                     "Also write all rules to FILE as Markdown, as in docs/rules.md");
  command.add_option("--json FILE", arguments->json, "Also write the rules to FILE as JSON");
  command.set_body([arguments] { return print_rules(*arguments); });
}

void add_explain(Command program) {
  Command command =
      program.add_subcommand("explain", "Explain rules: their reasons, checks, limits, and bugs in released software");
  auto patterns = std::make_shared<std::vector<std::string>>();
  command.add_option("RULE", *patterns, "CN-06, a pattern such as 'CN-*', or the set @smoke", {.required = true});
  command.set_body([patterns] { return explain(*patterns); });
}

}  // namespace plugfest::cli
