// --faults: the faults to inject during a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "conformance/rules/rule.h"
#include "fabric/topology/graph.h"
#include "harness/cli/command_line.h"
#include "harness/faults/script.h"

namespace plugfest::cli {

class FaultOption {
 public:
  void add_option(Command command);
  /// Parses the option. `seed`: for faults without a seed. Errors: std::runtime_error, also if it names a rule that is
  /// not among `rules`, or a host or link that is not in `graph`.
  void read(const topology::Graph& graph, const std::vector<const conformance::Rule*>& rules, std::uint64_t seed);
  /// Null if the option was not given.
  const faults::Script* script() const { return script_ ? &*script_ : nullptr; }
  /// The option as the user gave it; may be empty.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::optional<faults::Script> script_;
};

}  // namespace plugfest::cli
