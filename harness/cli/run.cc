// plugfest run: judges a plugin, rule by rule.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <random>

#include "conformance/rules/ground.h"
#include "conformance/rules/runner.h"
#include "conformance/rules/select.h"
#include "fabric/netns/sandbox.h"
#include "fabric/topology/graph.h"
#include "harness/cli/command.h"
#include "harness/cli/outputs.h"
#include "harness/cli/stop.h"
#include "harness/cli/subject.h"
#include "harness/cli/timeline.h"
#include "harness/report/console.h"
#include "harness/report/verdict.h"

namespace plugfest::cli {
namespace {

struct Arguments {
  std::string plugin;
  std::vector<std::string> patterns;
  std::string api;
  std::string topology = "triangle";
  std::string nic = "roce";
  std::optional<std::uint64_t> seed;
  double timeout_scale = 1;
  bool strict = false;
  bool fail_fast = false;
  bool list = false;
  Outputs outputs;
  Timeline timeline;
};

/// What is known of the plugin once a rank has loaded it; the file's name when it cannot be loaded.
std::string name_of(control::Session& session, const conformance::RulePath& path, const Plugin& plugin) {
  try {
    control::Lease lease = session.lease();
    std::string name = lease.rank(path.near, {.state = control::RankState::kLoaded}).library().name;
    lease.release(true);
    return name;
  } catch (const std::exception&) {
    return std::filesystem::path(plugin.load).filename().string();  // a rule says why
  }
}

std::string rerun_command(const Arguments& arguments, const Plugin& plugin, int api, std::uint64_t seed) {
  std::string command = "plugfest run";
  if (!arguments.plugin.empty()) {
    command +=
        " --plugin " + shell_word(arguments.plugin.find('/') == std::string::npos ? plugin.load : arguments.plugin);
  }
  command += fmt::format(" --api v{}", api);
  if (arguments.topology != "triangle") command += " --topology " + shell_word(arguments.topology);
  if (arguments.timeout_scale != 1) command += fmt::format(" --timeout-scale {}", arguments.timeout_scale);
  if (arguments.strict) command += " --strict";
  return command + fmt::format(" --seed {}", seed);
}

report::Run run_version(conformance::Ground& ground, Arguments& arguments, const Plugin& plugin, int api,
                        const std::vector<const conformance::Rule*>& rules, std::uint64_t seed,
                        report::Console& console, const report::Document& document) {
  control::Limits limits;
  limits.call_seconds *= arguments.timeout_scale;
  control::Session session(ground.launcher(), ground.subject(plugin.load, api), limits,
                           arguments.timeline.observer());

  report::Run run;
  run.plugin_path = plugin.load;
  run.plugin_name = name_of(session, ground.paths().front(), plugin);
  run.apis = plugin.apis;
  run.api = api;
  run.seed = seed;
  console.begin(document, run, rules.size());

  conformance::RunSettings settings;
  settings.rules = rules;
  settings.paths = ground.paths();
  settings.library = plugin.library;
  settings.api = api;
  settings.limits = limits;
  settings.seed = seed;
  settings.strict = arguments.strict;
  settings.rerun = rerun_command(arguments, plugin, api, seed);
  settings.stop = &stop_on_signals();
  settings.on_result = [&](const report::RuleResult& rule) {
    console.rule(rule);
    arguments.timeline.add(rule);
    if (arguments.fail_fast && report::is_bad(rule.verdict)) stop();
  };
  const auto start = std::chrono::steady_clock::now();
  run.rules = conformance::run_rules(&session, conformance::catalogue(), settings);
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  run.idle_cpu_share = session.idle_cpu_share();
  console.end(run);
  return run;
}

int run(Arguments& arguments) {
  const auto rules = conformance::select_rules(conformance::catalogue(), arguments.patterns);
  if (arguments.list) {
    for (const conformance::Rule* rule : rules) fmt::print("{}\n", rule->id);
    return 0;
  }
  if (arguments.nic != "roce") {
    throw std::runtime_error(fmt::format("--nic \"{}\": there is roce, the NIC in user space", arguments.nic));
  }
  if (!(arguments.timeout_scale > 0)) throw std::runtime_error("--timeout-scale: expected a number above 0");
  const topology::Graph graph = topology::named(arguments.topology);
  const Plugin plugin = find_plugin(arguments.plugin);
  const std::vector<int> apis = choose_apis(plugin, arguments.api);
  const std::uint64_t seed = arguments.seed ? *arguments.seed : std::random_device{}();
  report::Document document = new_document(arguments.nic, arguments.topology);
  arguments.outputs.open();
  arguments.timeline.open();

  if (const std::optional<int> exit_code = netns::enter_sandbox()) return *exit_code;
  const std::atomic<bool>& stopped = stop_on_signals();
  conformance::Ground ground(graph, plugin.library.empty());
  report::Console console(stdout, report::Style::of(stdout));
  for (const int api : apis) {
    document.runs.push_back(run_version(ground, arguments, plugin, api, rules, seed, console, document));
    if (stopped) break;
  }
  document.interrupted = stopped;
  arguments.outputs.write(document);
  arguments.timeline.write();
  if (stop_signal() != 0) return 128 + stop_signal();
  return report::summarize(document.runs).exit_code();
}

}  // namespace

void add_run(CLI::App& app, Body& chosen) {
  CLI::App* command = app.add_subcommand("run", "Judge a plugin, rule by rule, on a fabric made for it");
  auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("-p,--plugin", arguments->plugin,
                   "A libnccl-net.so, a name as in NCCL_NET_PLUGIN, nccl:IB or nccl:Socket; default: the bundled mesh "
                   "plugin")
      ->type_name("PLUGIN");
  command->add_option("-r,--rule", arguments->patterns, "Only these: CN-06, or a pattern such as 'CN-*'; repeatable")
      ->type_name("PATTERN");
  command->add_option("--api", arguments->api, "Version of the net interface: v6 to v12, or all; default: the newest")
      ->type_name("VERSION");
  command->add_option("-t,--topology", arguments->topology, "Hosts and links to build; default: triangle")
      ->type_name("NAME");
  command->add_option("--nic", arguments->nic, "Kind of NIC: roce, the one in user space")->type_name("KIND");
  command->add_option("--seed", arguments->seed, "Repeats the random choices of an earlier run")->type_name("N");
  command->add_option("--timeout-scale", arguments->timeout_scale, "Multiplies the 10 s that a call may take")
      ->type_name("X");
  command->add_flag("--strict", arguments->strict, "Broken [S] rules fail instead of warn");
  command->add_flag("--fail-fast", arguments->fail_fast, "Stop at the first rule that does not pass");
  command->add_flag("--list", arguments->list, "Print which rules would run");
  arguments->outputs.add_options(*command, true);
  arguments->timeline.add_option(*command);
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace plugfest::cli
