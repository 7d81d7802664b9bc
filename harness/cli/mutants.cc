// plugfest mutants: checks that each mutant fails the rules that it breaks.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "conformance/mutants/kill.h"
#include "fabric/system/clock.h"
#include "fabric/system/text.h"
#include "harness/bed/reduction.h"
#include "harness/bed/test_bed.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/cli/stop.h"
#include "harness/plugin/nccl.h"
#include "harness/report/verdict.h"

namespace plugfest::cli {
namespace {

// Two hosts with two links, for mutants of rules that need these.
constexpr const char* kTwoLinks = "pair:links=2";

struct MutantArguments {
  std::vector<std::string> patterns;
  std::vector<std::string> rules;
  std::string topology = "triangle";
  std::uint64_t seed = 1;
  double timeout_scale = 1;
  bool list = false;
  bool matrix = false;
  ConsoleOption console;
  Outputs outputs;
};

int kill_mutants(MutantArguments& arguments) {
  mutants::KillSettings settings;
  settings.folder = mutants::default_folder();
  if (!std::filesystem::exists(settings.folder)) {
    throw std::runtime_error(
        fmt::format("{}: no such folder: mutants are not installed; build them: scripts/plugfest mutants in a clone of "
                    "the repository",
                    settings.folder));
  }
  settings.mutants = mutants::select_mutants(mutants::load_mutants(settings.folder), arguments.patterns);
  settings.coverage = arguments.matrix ? mutants::Coverage::kEvery : mutants::Coverage::kDeclared;
  settings.rules = arguments.rules;
  std::erase_if(settings.mutants, [&](const mutants::Mutant* mutant) {
    return mutants::rules_for(conformance::catalog(), *mutant, settings.coverage, settings.rules).empty();
  });
  if (settings.mutants.empty()) {
    throw std::runtime_error(arguments.matrix ? "none of these rules can run on these mutants"
                                              : "none of these mutants declares these rules: add --matrix to run the "
                                                "rules on other mutants");
  }
  if (arguments.list) {
    for (const mutants::Mutant* mutant : settings.mutants) fmt::print("{}\n", mutant->name);
    return 0;
  }
  bed::FabricChoice fabric = bed::FabricChoice::built(arguments.topology);
  settings.nccl = !plugin::find_nccl().empty();
  const auto leave_out = [&](auto needs, const std::string& reason, const std::string& advice) {
    const auto left_out = std::erase_if(
        settings.mutants, [&](const mutants::Mutant* mutant) { return needs(*mutant, conformance::catalog()); });
    if (left_out == 0) return;
    const std::string text = fmt::format("{} left out: {}; {}", counted(left_out, "mutant"), reason, advice);
    if (settings.mutants.empty()) throw std::runtime_error(text);
    fmt::print(stderr, "plugfest: {}\n", text);
  };
  if (!settings.nccl)
    leave_out(mutants::needs_nccl, "the rules run NCCL, and there is no libnccl.so.2",
              fmt::format("get it with\n    {}", plugin::kFetchNccl));
  if (!mutants::has_two_links(fabric.graph))
    leave_out(mutants::needs_two_links, "the rules need two links between two hosts",
              fmt::format("run them with --topology {}", kTwoLinks));
  const bool reduces = bed::can_reduce(fabric.graph);
  if (!reduces)
    leave_out(mutants::needs_reduction, "the rules need switches that reduce", "run them with --topology star:3");
  settings.seed = arguments.seed;
  settings.program = Again::program();
  settings.limits.call_seconds *= arguments.timeout_scale;
  settings.limits.blocked_seconds = control::Limits::kBlockedShare * settings.limits.call_seconds;
  bed::RunBed run_bed(std::move(fabric));
  report::Document document = new_document(run_bed.nic().name(), run_bed.graph().name);
  arguments.outputs.open();

  if (const std::optional<int> exit_code = run_bed.enter()) return explain_end(*exit_code);
  settings.stop = &stop_on_signals();
  settings.limits.stop_fd = stop_fd();
  bed::TestBed& bed = run_bed.build(settings.nccl);
  if (reduces) bed.start_reduction();
  std::FILE* const stream = arguments.outputs.text_stream();
  report::Console console(stream, arguments.console.style(stream));
  settings.on_result = [&](const report::MutantResult& mutant) { console.mutant(mutant); };
  const Stopwatch watch;
  document.mutants = mutants::kill(bed, conformance::catalog(), settings);
  document.stop_signal = stop_signal();
  if (arguments.matrix) console.kill_table(document.mutants);
  console.end(document.mutants, watch.seconds());
  arguments.outputs.write(document);
  return report::exit_code(document);
}

}  // namespace

void add_mutants(Command program) {
  Command command =
      program.add_subcommand("mutants", "Check that each mutant fails the rules that it declares",
                             "A mutant is a plugin with one deliberate bug. With --matrix, all rules run, and a mutant "
                             "must fail no others.");
  auto arguments = std::make_shared<MutantArguments>();
  command.add_option("-m,--mutant PATTERN", arguments->patterns, "Only this mutant: a name or a pattern; repeatable");
  add_rule_option(command, arguments->rules);
  add_topology_option(command, arguments->topology, "triangle");
  command.add_flag("--matrix", arguments->matrix, "Run every rule on every mutant, not only the declared rules");
  command.add_option("--seed N", arguments->seed, "Seed of the random choices; default: 1");
  add_timeout_option(command, arguments->timeout_scale, "calls, 10 s");
  command.add_flag("--list", arguments->list, "Print the names of all mutants and exit");
  arguments->console.add_options(command, false);
  arguments->outputs.add_options(command, false);
  command.set_body([arguments] { return kill_mutants(*arguments); });
}

}  // namespace plugfest::cli
