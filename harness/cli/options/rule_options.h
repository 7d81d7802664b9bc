// The options of commands that judge a plugin by rules: the plugin, --rule, --baseline, --strict, --seed,
// --timeout-scale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/command_line.h"
#include "harness/report/baseline.h"

namespace plugfest::cli {

struct RuleOptions {
  std::string plugin;
  std::vector<std::string> patterns;
  std::string baseline;
  bool strict = false;
  std::optional<std::uint64_t> seed;
  double timeout_scale = 1;

  /// `call_limit`: the time limit of calls, for the help text.
  void add_options(Command command, const std::string& call_limit);
  /// The seed that the user gave, or a random one.
  std::uint64_t chosen_seed() const;
  /// The findings of --baseline. Errors: std::runtime_error, also if it names a rule that does not exist.
  report::KnownFindings known_findings() const;
};

}  // namespace plugfest::cli
