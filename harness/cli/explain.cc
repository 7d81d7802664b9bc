// plugfest explain: prints the page of a rule.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <stdexcept>

#include "conformance/rules/rule.h"
#include "harness/cli/command.h"
#include "harness/cli/rule_page.h"

namespace plugfest::cli {
namespace {

int explain(const std::vector<std::string>& patterns) {
  const auto rules = conformance::select_rules(conformance::catalogue(), patterns);
  std::optional<MutantsByRule> mutants;
  try {
    mutants = mutants_by_rule();
  } catch (const std::runtime_error&) {
    // The mutants are an optional target: the page says that they are not built.
  }
  for (const conformance::Rule* rule : rules) {
    fmt::print("{}{}", rule == rules.front() ? "" : "\n", console_page(*rule, mutants ? &*mutants : nullptr));
  }
  return 0;
}

}  // namespace

void add_explain(Command program) {
  Command command = program.add_subcommand("explain", "Explain rules: their reasons, checks, limits and known faults");
  auto patterns = std::make_shared<std::vector<std::string>>();
  command.add_option("RULE", *patterns, "CN-06, a pattern such as 'CN-*', or a group such as @smoke").required();
  command.set_body([patterns] { return explain(*patterns); });
}

}  // namespace plugfest::cli
