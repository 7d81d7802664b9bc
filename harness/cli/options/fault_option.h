// --faults: what shall go wrong during a run.
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
  /// Reads what was asked for. Errors: std::runtime_error, also when it speaks of a rule that will not run or of a host
  /// or link that is not there.
  void read(const topology::Graph& graph, const std::vector<const conformance::Rule*>& rules, std::uint64_t seed);
  /// Null when nothing was asked for.
  const faults::Script* script() const { return script_ ? &*script_ : nullptr; }
  /// As the user gave it; may be empty.
  const std::string& asked() const { return asked_; }

 private:
  std::string asked_;
  std::optional<faults::Script> script_;
};

}  // namespace plugfest::cli
