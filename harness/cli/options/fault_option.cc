#include "harness/cli/options/fault_option.h"

namespace plugfest::cli {

void FaultOption::add_option(Command command) {
  command
      .add_option(
          "--faults", text_,
          "Faults to inject: loss=1%,delay=1ms,seed=7 (also duplicate, reorder, corrupt) on every link, or a YAML "
          "file, see docs/faults.md")
      .type_name("FAULTS");
}

void FaultOption::read(const topology::Graph& graph, const std::vector<const conformance::Rule*>& rules,
                       std::uint64_t seed) {
  if (text_.empty()) return;
  faults::Script script = faults::read_script(text_, graph);
  std::vector<std::string> selected;
  for (const conformance::Rule* rule : rules) selected.push_back(rule->id);
  script.assign_seeds(seed);  // before the selection, on which they must not depend
  faults::select_entries(script, selected, conformance::catalogue().ids());
  script_ = std::move(script);
}

}  // namespace plugfest::cli
