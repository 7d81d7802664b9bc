// plugfest run: judges a plugin against the rules. Parses, prepares, executes, writes.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>

#include "fabric/netns/namespace_restriction.h"
#include "fabric/netns/sandbox.h"
#include "harness/cli/command.h"
#include "harness/cli/options/numbers.h"
#include "harness/cli/run/arguments.h"
#include "harness/cli/run/execute.h"
#include "harness/cli/run/last_failed.h"
#include "harness/cli/run/prepare.h"
#include "harness/cli/stop.h"
#include "harness/report/verdict.h"

namespace plugfest::cli {
namespace {

/// Runs the same command line in a virtual machine if the NIC kind needs one, and writes its outputs to the user's
/// files. Returns its exit code, or nothing if the run continues in this process.
std::optional<int> run_in_guest(RunArguments& arguments, bed::NicKind& nic) {
  std::vector<std::string> paths = arguments.outputs.paths();
  if (!arguments.timeline.path().empty()) paths.push_back(arguments.timeline.path());
  const std::optional<bed::GuestResult> result = nic.run_in_guest(paths);
  if (!result) return std::nullopt;
  arguments.outputs.write_contents(result->files);
  const auto trace = result->files.find(arguments.timeline.path());
  if (trace != result->files.end()) arguments.timeline.write_content(trace->second);
  return result->exit_code;
}

/// Enters the namespaces of the run. On machines that forbid them the error names the alternative.
std::optional<int> enter(PreparedRun& run) {
  run.fabric.take_turn();
  try {
    if (const std::optional<int> exit_code = run.fabric.enter(*run.nic)) return explain_end(*exit_code);
    if (!run.fabric.record()) return std::nullopt;
    // A background fabric outlives the run, and so would processes that the plugin has started.
    if (const std::optional<int> exit_code = netns::contain_processes()) return explain_end(*exit_code);
    return std::nullopt;
  } catch (const netns::NamespacesForbidden& forbidden) {
    throw std::runtime_error(fmt::format("{}\n  or add --nic loopback, which needs no namespaces", forbidden.what()));
  }
}

void write(RunArguments& arguments, const report::Document& document) {
  arguments.outputs.write(document);
  arguments.timeline.write();
}

int run(RunArguments& arguments) {
  const std::vector<const conformance::Rule*> rules = selected_rules(arguments);
  if (arguments.list) {
    std::set<plugin::InterfaceKind> judged;
    for (const PluginVersion& version :
         choose_versions(find_plugin(arguments.plugin, false), arguments.interface, arguments.api)) {
      judged.insert(version.interface);
    }
    for (const conformance::Rule* rule : rules) {
      if (judged.contains(rule->apis.interface)) fmt::print("{}\n", rule->id);
    }
    return 0;
  }
  PreparedRun run = prepare(arguments, rules);
  if (const std::optional<int> exit_code = run_in_guest(arguments, *run.nic)) return *exit_code;
  if (const std::optional<int> exit_code = enter(run)) return *exit_code;
  execute(arguments, run);
  write(arguments, run.document);
  LastFailed(run.plugin.load).update(run.document);
  return report::exit_code(run.document);
}

}  // namespace

void add_run(Command program) {
  Command command =
      program.add_subcommand("run", "Judge a plugin, rule by rule, on a fabric that is built for the run");
  auto arguments = std::make_shared<RunArguments>();
  arguments->RuleOptions::add_options(command, "10 s (60 s with --nic vm)");
  command.add_option("--api", arguments->api, "Version of the interface, such as v8, or all; default: the newest")
      .type_name("VERSION");
  command
      .add_option("--interface", arguments->interface,
                  "Judge this interface only: net, collnet or profiler; default: all that the plugin exports")
      .type_name("NAME");
  command.add_option("-t,--topology", arguments->topology, "Hosts and links to build; default: triangle")
      .type_name("NAME");
  command.add_option("--fabric", arguments->fabric, "Use a background fabric; see fabric up")
      .type_name("NAME")
      .excludes("--topology");
  command
      .add_option("--device", arguments->devices,
                  "The plugin's device NAME is this interface, foo0=a/eth0, if the run's header is wrong; repeatable")
      .type_name("NAME=HOST/INTERFACE");
  command
      .add_option("--path", arguments->path,
                  "Judge between these two interfaces, also if they share no link; each other host runs one more rank, "
                  "whose plugin may relay")
      .type_name("HOST.INTERFACE,HOST.INTERFACE");
  command.add_flag("--with-nccl", arguments->with_nccl,
                   "Also the rules EE: NCCL 2.28.9 itself runs on the plugin, without a GPU; --rule 'EE-*' implies it");
  command.add_flag(
      "--emulate-gpu", arguments->emulate_gpu,
      "Stand-ins for libcuda, libcudart and NVML, for plugins that do not start without a GPU; rules about "
      "GPU memory are skipped all the same");
  command.add_flag("--thorough", arguments->thorough,
                   "Also the rules that take a minute or gigabytes of memory, and ten times as much traffic in others");
  arguments->nic.add_options(command);
  check_count(command.add_option("--maxfail", arguments->max_failures, "Stop when N rules have failed"), 1000000)
      .type_name("N");
  command.add_flag("--fail-fast", arguments->fail_fast, "The same as --maxfail 1");
  command.add_flag("--last-failed", arguments->last_failed,
                   "Only the rules that failed when this plugin was last judged; all rules if none did");
  check_count(command.add_option("--repeat", arguments->repeat, "Judge N times with one seed, and report flaky rules"),
              1000000)
      .type_name("N");
  command.add_option("--shard", arguments->shard, "Only part I of N parts of the rules").type_name("I/N");
  command.add_flag("--oob", arguments->out_of_band,
                   "Add oob0 to each host, on a network without NICs that all hosts reach; always for nccl:*");
  command
      .add_option("--wrap", arguments->wrap,
                  "Run ranks under this tool: 'valgrind -q'; with {pid}, attach it to the rank of one rule: 'gdb -p "
                  "{pid}'")
      .type_name("COMMAND");
  command.add_flag("--list", arguments->list, "Print the rules that would run");
  command
      .add_option("--env", arguments->environment,
                  "Set this variable for the plugin and show it in the command that repeats a rule; repeatable")
      .type_name("NAME=VALUE");
  arguments->console.add_options(command, true);
  arguments->outputs.add_options(command, true);
  arguments->timeline.add_option(command);
  arguments->faults.add_option(command);
  arguments->captures.add_option(command);
  command.set_body([arguments] { return run(*arguments); });
}

}  // namespace plugfest::cli
