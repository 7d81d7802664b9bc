// plugfest run: tests a plugin against the rules. Parses and checks the options, runs, and writes the results. Options
// are checked before a fabric is built, so that errors in the command line appear at once.
#include "harness/cli/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include "fabric/system/process.h"
#include "fabric/system/text.h"
#include "fabric/topology/quantity.h"
#include "harness/bed/test_bed.h"
#include "harness/cli/command.h"
#include "harness/cli/stop.h"
#include "harness/cli/tool_launcher.h"
#include "harness/control/launcher.h"
#include "harness/nccl/job_ranks.h"
#include "harness/nccl/rank_environment.h"
#include "harness/plugin/nccl.h"
#include "harness/report/verdict.h"

namespace plugfest::cli {
namespace {

// Returns the I-th of N parts of the rules. `shard`: "I/N". Errors: std::runtime_error.
std::vector<const conformance::Rule*> take_shard(const std::vector<const conformance::Rule*>& rules,
                                                 const std::string& shard) {
  constexpr int kMax = 9999;
  std::size_t index = 0, parts = 0;
  try {
    const std::size_t slash = std::min(shard.find('/'), shard.size());
    parts = static_cast<std::size_t>(topology::parse_count(std::string_view(shard).substr(slash + 1), 1, kMax));
    index = static_cast<std::size_t>(
        topology::parse_count(std::string_view(shard).substr(0, slash), 1, static_cast<int>(parts)));
  } catch (const std::exception&) {
    throw std::runtime_error(fmt::format("--shard \"{}\": expected I/N, such as 1/4", shard));
  }
  std::vector<const conformance::Rule*> part;
  for (std::size_t i = index - 1; i < rules.size(); i += parts) part.push_back(rules[i]);
  if (part.empty()) {
    throw std::runtime_error(fmt::format("--shard {}: this part has no rule, because the run has {}: use fewer parts",
                                         shard, counted(rules.size(), "rule")));
  }
  return part;
}

// Returns the members of `rules` that failed the last time. If none failed, returns `rules`.
std::vector<const conformance::Rule*> keep_last_failed(std::vector<const conformance::Rule*> rules,
                                                       const Plugin& plugin) {
  if (LastFailed::folder().empty())
    throw std::runtime_error("--last-failed: there is no folder with earlier results: set XDG_STATE_HOME or HOME");
  const LastFailed last(plugin.load);
  if (last.rules().empty()) {
    fmt::print(stderr, "plugfest: --last-failed: no failed rule is recorded in {}, so all rules run\n",
               LastFailed::folder());
    return rules;
  }
  std::erase_if(rules, [&](const conformance::Rule* rule) { return !last.rules().contains(rule->id); });
  if (rules.empty()) {
    throw std::runtime_error(
        fmt::format("--last-failed: none of the selected rules failed last time; those that failed: {}",
                    fmt::join(last.rules(), ", ")));
  }
  return rules;
}

// Sets the variables of --env, which ranks inherit.
void set_environment(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw std::runtime_error(fmt::format("--env \"{}\": expected NAME=VALUE", variable));
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
}

// Refuses options that the NIC kind does not support.
void check_combination(const RunArguments& arguments, const bed::NicKind& nic) {
  const bed::NicSupport support = nic.support();
  if (arguments.last_failed && nic.name() == "vm")
    throw std::runtime_error("--last-failed: the virtual machine does not see earlier results: leave out --nic vm");
  if (const std::string driver = nccl::stand_in_driver(); arguments.emulate_gpu && !std::filesystem::exists(driver))
    throw std::runtime_error(
        fmt::format("--emulate-gpu: {} is missing; in a clone, scripts/plugfest builds it", driver));
  if (!arguments.faults.text().empty() && !support.faults) {
    throw std::runtime_error(
        fmt::format("--faults: only the user-space NIC on a fabric supports them: leave out --nic {}", nic.name()));
  }
  if (arguments.captures.wanted() && !support.faults) {
    throw std::runtime_error(
        fmt::format("--pcap: only the user-space NIC on a fabric captures packets: leave out --nic {}", nic.name()));
  }
}

// Refuses --with-nccl where NCCL cannot run.
void check_nccl(const Plugin& plugin, bed::RunBed& bed) {
  if (!bed.nic().support().faults) {
    throw std::runtime_error(fmt::format(
        "--with-nccl: NCCL needs the fabric with the user-space NIC: leave out --nic {}", bed.nic().name()));
  }
  plugin::require_nccl("--with-nccl");
  nccl::check_reach(plugin.load, bed.graph());
}

// The rules that --rule and --shard select. Errors: std::runtime_error.
std::vector<const conformance::Rule*> selected_rules(const RunArguments& arguments) {
  auto rules = conformance::select_rules(conformance::catalog(), arguments.patterns,
                                         {.nccl = runs_nccl(arguments), .thorough = arguments.thorough});
  if (rules.empty())
    throw std::runtime_error("--rule: these rules take a minute or gigabytes of memory: add --thorough");
  if (arguments.last_failed) rules = keep_last_failed(std::move(rules), find_plugin(arguments.plugin, false));
  return arguments.shard.empty() ? rules : take_shard(rules, arguments.shard);
}

// The versions to test: those that the release of --for uses, or without --for those that --api names. Errors:
// std::runtime_error.
ReleaseUse chosen_use(const RunArguments& arguments, const Plugin& plugin) {
  const std::string interface = arguments.interface == "all" ? "" : arguments.interface;
  if (!arguments.release.empty()) return use_by_release(plugin, arguments.release, interface);
  return {.versions = choose_versions(plugin, interface, arguments.api)};
}

// The topology of a run of these rules without -t.
std::string chosen_topology(const RunArguments& arguments, const std::vector<const conformance::Rule*>& rules) {
  const bed::RunOptions plain;
  const bool is_default = arguments.plugin.empty() && !runs_nccl(arguments);  // the bundled plugin
  if (is_default || !arguments.bed.fabric.empty() || arguments.bed.nic != plain.nic) return plain.topology;
  const Plugin subject = find_plugin(arguments.plugin, false);
  const auto connects_all = [&](const PluginVersion& version) {
    return plugin::connects_all_ranks(version.interface) &&
           std::any_of(rules.begin(), rules.end(),
                       [&](const auto* rule) { return rule->apis.is_about(version.interface); });
  };
  const std::vector<PluginVersion> versions = chosen_use(arguments, subject).versions;
  return runs_nccl(arguments) || std::any_of(versions.begin(), versions.end(), connects_all)
             ? default_job_topology(subject)
             : plain.topology;
}

// Checks the arguments, and opens the output files, so that errors appear before a fabric is built. Also parses
// --faults into `arguments`. Errors: std::runtime_error.
PreparedRun prepare(RunArguments& arguments, std::vector<const conformance::Rule*> rules) {
  arguments.bed.timeout_scale = arguments.timeout_scale;
  bed::RunBed bed(arguments.bed);
  check_combination(arguments, bed.nic());
  if (arguments.fail_fast) arguments.max_failures = 1;
  set_environment(arguments.environment);
  arguments.console.style();  // checks its options
  Plugin plugin = find_plugin(arguments.plugin, false);
  auto [release, versions, unused] = chosen_use(arguments, plugin);
  report::Document document = new_document(bed.nic().name(), bed.graph().name);
  if (release != nullptr) document.release = {.nccl = std::string(release->name), .unused = std::move(unused)};
  std::erase_if(versions, [&](const PluginVersion& version) {
    return std::none_of(rules.begin(), rules.end(),
                        [&](const conformance::Rule* rule) { return rule->apis.is_about(version.interface); });
  });
  if (versions.empty()) {
    throw std::runtime_error("--rule: none of these rules is about an interface that is tested; " + program_as_typed() +
                             " rules lists all");
  }
  if (runs_nccl(arguments)) check_nccl(plugin, bed);
  if (!arguments.wrap.empty() && !attaches_to_rank(arguments.wrap)) require_runnable(arguments.wrap);
  if (attaches_to_rank(arguments.wrap) &&
      rules.size() * versions.size() * static_cast<std::size_t>(arguments.repeat) != 1)
    throw std::runtime_error("--wrap with {pid} debugs a rank of one rule: select the rule with --rule");
  report::KnownFindings known = arguments.known_findings();
  const std::uint64_t seed = chosen_seed(arguments.seed);
  arguments.faults.read(bed.graph(), rules, seed);
  arguments.outputs.open();
  arguments.timeline.open();
  arguments.captures.open();
  return {.rules = std::move(rules),
          .bed = std::move(bed),
          .plugin = std::move(plugin),
          .versions = std::move(versions),
          .known = std::move(known),
          .seed = seed,
          .document = std::move(document)};
}

// Runs the same command line in a virtual machine if the NIC kind needs one, and writes its outputs to the user's
// files. Returns its exit code, or nothing if the run continues in this process.
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

// Prints the rules that a run with these arguments includes.
int list_rules(const RunArguments& arguments, const std::vector<const conformance::Rule*>& rules) {
  std::set<plugin::InterfaceKind> tested;
  for (const plugin::Interface& interface : plugin::interfaces())
    if (arguments.plugin.empty() && interface.name == arguments.interface) tested.insert(interface.kind);
  if (tested.empty())
    for (const PluginVersion& version : chosen_use(arguments, find_plugin(arguments.plugin, false)).versions)
      tested.insert(version.interface);
  for (const conformance::Rule* rule : rules)
    if (std::any_of(tested.begin(), tested.end(), [&](const auto kind) { return rule->apis.is_about(kind); }))
      fmt::print("{}\n", rule->id);
  return 0;
}

int run(RunArguments& arguments) {
  if (arguments.watch)
    if (const std::optional<int> exit_code = watch(arguments)) return *exit_code;
  const std::vector<const conformance::Rule*> rules = selected_rules(arguments);
  if (arguments.list) return list_rules(arguments, rules);
  const bool chooses = arguments.bed.topology.empty();
  if (chooses) arguments.bed.topology = chosen_topology(arguments, rules);
  PreparedRun run = prepare(arguments, rules);
  control::rank_program();  // throws one error for all rules if only the package plugfest-fabric is installed
  if (chooses && arguments.bed.topology != bed::RunOptions().topology) run.topology = arguments.bed.topology;
  if (const std::optional<int> exit_code = run_in_guest(arguments, run.bed.nic())) return *exit_code;
  if (const std::optional<int> exit_code = run.bed.enter()) return explain_end(*exit_code, run.plugin.load);
  execute(arguments, run);
  arguments.outputs.write(run.document);
  hand_over(arguments, run.document);
  arguments.timeline.write();
  LastFailed(run.plugin.load).update(run.document);
  return report::exit_code(run.document);
}

}  // namespace

bool runs_nccl(const RunArguments& arguments) {
  return arguments.with_nccl || conformance::ask_for_nccl(conformance::catalog(), arguments.patterns);
}

void add_run(Command program) {
  Command command = program.add_subcommand("run", "Test a plugin, rule by rule, on a fabric that is built for the run");
  auto arguments = std::make_shared<RunArguments>();
  arguments->RuleOptions::add_options(command, "10 s (60 s with --nic vm)");
  command.add_option(
      "--api VERSION", arguments->api,
      "Version of the interface, such as v8, or all; default: the newest. Without --interface, a version "
      "is that of the net, or of the first interface if the plugin has no net");
  command.add_option("--for nccl-RELEASE", arguments->release,
                     "Test the versions that this release of NCCL loads, as in nccl-2.30.7, and name the interfaces "
                     "that it does not use",
                     {.excludes = "--api"});
  command.add_option(
      "--interface NAME", arguments->interface,
      "Test this interface only: net, collnet, gin, rma, profiler, tuner or env; all: each that the plugin "
      "exports; default: all");
  add_bed_options(command, arguments->bed);
  arguments->bed.topology.clear();
  command.add_option(
      "--path HOST.INTERFACE,HOST.INTERFACE", arguments->bed.path,
      "Run rules between these two interfaces, even without a common link; every other host runs one more "
      "rank, whose plugin may relay");
  command.add_flag(
      "--with-nccl", arguments->with_nccl,
      "Also run the EE rules, in which NCCL 2.28.9 itself uses the plugin, without a GPU; --rule 'EE-*' implies it",
      {.again = false});
  command.add_flag("--emulate-gpu", arguments->emulate_gpu,
                   "Provide stand-ins for libcuda, libcudart and NVML to plugins that require a GPU; rules about GPU "
                   "memory run on the emulated GPU, whose memory is the host's");
  command.add_flag("--thorough", arguments->thorough,
                   "Also run rules that take a minute or gigabytes of memory, and ten times the traffic in others");
  command.add_flag("--patient", arguments->patient,
                   "Give each call its full time limit; by default, after three calls have hung, plugfest ends a call "
                   "early if it is blocked where another one has hung",
                   {.again = false});
  command.add_option("--maxfail N", arguments->max_failures, "Stop when N rules have failed",
                     {.at_most = 1000000, .again = false});
  command.add_flag("--fail-fast", arguments->fail_fast, "Same as --maxfail 1", {.again = false});
  command.add_flag("--last-failed", arguments->last_failed,
                   "Run only the rules that failed in the last run of this plugin; all rules if none failed",
                   {.again = false});
  command.add_option("--repeat N", arguments->repeat, "Repeat the run N times with one seed, and report flaky rules",
                     {.at_most = 1000000, .again = false});
  command.add_option("--shard I/N", arguments->shard, "Run only part I of N parts of the rules", {.again = false});
  command.add_option(
      "--wrap COMMAND", arguments->wrap,
      "Run ranks under this tool: 'valgrind -q'; with {pid}, attach it to the rank of one rule: 'gdb -p {pid}'");
  command.add_flag("--watch", arguments->watch,
                   "Test again whenever the library changes, and print the verdicts that changed; Ctrl-C ends",
                   {.again = false});
  command.add_flag("--list", arguments->list, "Print the rules that would run", {.again = false});
  command.add_option("--env NAME=VALUE", arguments->environment,
                     "Set this variable for the plugin and show it in the command that repeats a rule; repeatable");
  arguments->console.add_options(command, true);
  arguments->outputs.add_options(command, true);
  arguments->timeline.add_option(command);
  arguments->faults.add_option(command);
  arguments->captures.add_option(command);
  command.set_body([arguments] { return run(*arguments); });
}

}  // namespace plugfest::cli
