// plugfest mutants: is each broken plugin caught by the rule that it breaks?
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "conformance/mutants/kill.h"
#include "conformance/rules/ground.h"
#include "fabric/netns/sandbox/sandbox.h"
#include "fabric/topology/graph.h"
#include "harness/cli/command.h"
#include "harness/cli/options/numbers.h"
#include "harness/cli/options/outputs.h"
#include "harness/cli/options/subject.h"
#include "harness/report/console.h"

namespace plugfest::cli {
namespace {

struct Arguments {
  std::vector<std::string> patterns;
  std::uint64_t seed = 1;
  double timeout_scale = 1;
  bool list = false;
  Outputs outputs;
};

int kill_mutants(Arguments& arguments) {
  mutants::KillSettings settings;
  settings.mutants = mutants::select_mutants(arguments.patterns);
  if (arguments.list) {
    for (const mutants::Mutant* mutant : settings.mutants) fmt::print("{}\n", mutant->name);
    return 0;
  }
  settings.folder = conformance::library_folder() + "/mutants";
  settings.seed = arguments.seed;
  settings.program = shell_word(program_as_typed());
  settings.limits.call_seconds *= arguments.timeout_scale;
  report::Document document = new_document("roce", "triangle");
  arguments.outputs.open();

  if (const std::optional<int> exit_code = netns::enter_sandbox()) return *exit_code;
  conformance::Ground ground(topology::named("triangle"), false);
  report::Console console(stdout, report::Style::of(stdout));
  settings.on_result = [&](const report::MutantResult& mutant) { console.mutant(mutant); };
  const auto start = std::chrono::steady_clock::now();
  document.mutants = mutants::kill(ground, conformance::catalogue(), settings);
  console.end(document.mutants, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  arguments.outputs.write(document);
  const bool all_good = std::all_of(document.mutants.begin(), document.mutants.end(),
                                    [](const auto& mutant) { return mutant.killed && mutant.caught_wrongly.empty(); });
  return all_good ? 0 : 1;
}

}  // namespace

void add_mutants(Command program) {
  Command command = program.add_subcommand(
      "mutants", "Run plugins that are broken on purpose: each must be caught by the rule it breaks");
  auto arguments = std::make_shared<Arguments>();
  command.add_option("-m,--mutant", arguments->patterns, "Only these: a name or pattern; repeatable")
      .type_name("PATTERN");
  check_seed(command.add_option("--seed", arguments->seed, "Seed of the rules' random choices; default: 1"))
      .type_name("N");
  check_timeout_scale(
      command.add_option("--timeout-scale", arguments->timeout_scale, "Multiplies the 10 s that a call may take"))
      .type_name("X");
  command.add_flag("--list", arguments->list, "Print which mutants there are");
  arguments->outputs.add_options(command, false);
  command.set_body([arguments] { return kill_mutants(*arguments); });
}

}  // namespace plugfest::cli
