// plugfest mutants: checks that each mutant fails the rules that it breaks.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "conformance/mutants/kill.h"
#include "fabric/system/text.h"
#include "harness/bed/run_bed.h"
#include "harness/bed/test_bed.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/cli/stop.h"
#include "harness/plugin/nccl.h"
#include "harness/report/console.h"
#include "harness/report/verdict.h"

namespace plugfest::cli {
namespace {

struct Arguments {
  std::vector<std::string> patterns;
  std::uint64_t seed = 1;
  double timeout_scale = 1;
  bool list = false;
  bool matrix = false;
  ConsoleOption console;
  Outputs outputs;
};

int kill_mutants(Arguments& arguments) {
  mutants::KillSettings settings;
  settings.folder = bed::library_folder() + "/mutants";
  if (!std::filesystem::exists(settings.folder)) {
    throw std::runtime_error(
        fmt::format("{}: no such folder: mutants are not installed; build them: scripts/plugfest mutants in a clone of "
                    "the repository",
                    settings.folder));
  }
  settings.mutants = mutants::select_mutants(mutants::load_mutants(settings.folder), arguments.patterns);
  if (arguments.list) {
    for (const mutants::Mutant* mutant : settings.mutants) fmt::print("{}\n", mutant->name);
    return 0;
  }
  settings.nccl = !plugin::find_nccl().empty();
  if (!settings.nccl) {
    const auto left_out = std::erase_if(settings.mutants, [](const mutants::Mutant* mutant) {
      return mutants::needs_nccl(*mutant, conformance::catalogue());
    });
    if (left_out != 0) {
      fmt::print(stderr, "plugfest: no libnccl.so.2, so {} of rules that run NCCL are left out; get it with\n    {}\n",
                 counted(left_out, "mutant"), plugin::kFetchNccl);
    }
    if (settings.mutants.empty()) throw std::runtime_error("no mutant is left");
  }
  settings.seed = arguments.seed;
  settings.every_rule = arguments.matrix;
  settings.program = Again::program();
  settings.limits.call_seconds *= arguments.timeout_scale;
  bed::RunBed run_bed(bed::FabricChoice::built("triangle"));
  report::Document document = new_document(run_bed.nic().name(), run_bed.graph().name);
  arguments.outputs.open();

  if (const std::optional<int> exit_code = run_bed.enter()) return explain_end(*exit_code);
  settings.stop = &stop_on_signals();
  settings.limits.stop_fd = stop_fd();
  bed::TestBed& bed = run_bed.build(settings.nccl);
  std::FILE* const stream = arguments.outputs.text_stream();
  report::Console console(stream, arguments.console.style(stream));
  settings.on_result = [&](const report::MutantResult& mutant) { console.mutant(mutant); };
  const auto start = std::chrono::steady_clock::now();
  document.mutants = mutants::kill(bed, conformance::catalogue(), settings);
  document.stop_signal = stop_signal();
  if (arguments.matrix) console.kill_table(document.mutants);
  console.end(document.mutants, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  arguments.outputs.write(document);
  return report::exit_code(document);
}

}  // namespace

void add_mutants(Command program) {
  Command command =
      program.add_subcommand("mutants", "Check that each broken plugin fails the declared rules and no others");
  auto arguments = std::make_shared<Arguments>();
  command.add_option("-m,--mutant PATTERN", arguments->patterns, "Only this mutant: a name or a pattern; repeatable");
  command.add_flag("--matrix", arguments->matrix, "Run every rule on every mutant, not only the declared rules");
  command.add_option("--seed N", arguments->seed, "Seed of the random choices; default: 1");
  add_timeout_option(command, arguments->timeout_scale, "calls, 10 s");
  command.add_flag("--list", arguments->list, "Print the names of all mutants and exit");
  arguments->console.add_options(command, false);
  arguments->outputs.add_options(command, false);
  command.set_body([arguments] { return kill_mutants(*arguments); });
}

}  // namespace plugfest::cli
