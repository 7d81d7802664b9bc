#include "harness/cli/options/rule_options.h"

#include <random>

#include "conformance/rules/rule.h"
#include "harness/cli/options/numbers.h"

namespace plugfest::cli {

void RuleOptions::add_options(Command command, const std::string& call_limit) {
  command
      .add_option("-p,--plugin", plugin,
                  "A libnccl-net.so, a name as in NCCL_NET_PLUGIN, nccl:IB or nccl:Socket; default: the bundled mesh "
                  "plugin")
      .type_name("PLUGIN");
  command
      .add_option("-r,--rule", patterns,
                  "Only these rules: CN-06, a pattern such as 'CN-*', or the group @smoke; repeatable")
      .type_name("PATTERN");
  command
      .add_option("--baseline", baseline,
                  "Waive these known findings: a YAML or JSON list of rule, subject, reason, expires")
      .type_name("FILE");
  command.add_flag("--strict", strict, "Broken [S] rules fail instead of warning");
  check_seed(command.add_option("--seed", seed, "Repeat the random choices of an earlier run")).type_name("N");
  check_timeout_scale(
      command.add_option("--timeout-scale", timeout_scale, "Multiply the time limit of calls, " + call_limit))
      .type_name("X");
}

std::uint64_t RuleOptions::chosen_seed() const { return seed ? *seed : std::random_device{}(); }

report::KnownFindings RuleOptions::known_findings() const {
  if (baseline.empty()) return {};
  report::KnownFindings known = report::KnownFindings::read(baseline);
  known.require_rules(conformance::catalogue().ids());
  return known;
}

}  // namespace plugfest::cli
