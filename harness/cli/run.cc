// plugfest run: judges a plugin, rule by rule.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>

#include "conformance/rules/ground.h"
#include "conformance/rules/runner.h"
#include "conformance/rules/select.h"
#include "fabric/netns/sandbox/namespace_restriction.h"
#include "harness/cli/command.h"
#include "harness/cli/options/fault_option.h"
#include "harness/cli/options/loader.h"
#include "harness/cli/options/nic.h"
#include "harness/cli/options/numbers.h"
#include "harness/cli/options/outputs.h"
#include "harness/cli/options/place.h"
#include "harness/cli/options/subject.h"
#include "harness/cli/options/timeline.h"
#include "harness/cli/stop.h"
#include "harness/faults/schedule.h"
#include "harness/report/console.h"
#include "harness/report/known_findings.h"
#include "harness/report/verdict.h"

namespace plugfest::cli {
namespace {

struct Arguments {
  std::string plugin;
  std::vector<std::string> patterns;
  std::string api;
  std::string topology = "triangle";
  std::string fabric;
  Nic nic;
  std::optional<std::uint64_t> seed;
  double timeout_scale = 1;
  bool strict = false;
  bool fail_fast = false;
  bool list = false;
  bool out_of_band = false;
  int repeat = 1;
  std::string shard;
  std::string loader = "plugfest";
  std::string baseline;
  Outputs outputs;
  Timeline timeline;
  FaultOption faults;
};

/// What all versions and repetitions of one invocation share.
struct Work {
  conformance::Ground& ground;
  const Plugin& plugin;
  const std::vector<const conformance::Rule*>& rules;
  const report::KnownFindings& known;
  std::uint64_t seed;
  report::Console& console;
  const report::Document& document;
};

/// The I-th of N parts of the rules, by "I/N". Errors: std::runtime_error.
std::vector<const conformance::Rule*> take_shard(const std::vector<const conformance::Rule*>& rules,
                                                 const std::string& shard) {
  std::size_t which = 0, parts = 0;
  int end = 0;
  const bool whole = std::sscanf(shard.c_str(), "%4zu/%4zu%n", &which, &parts, &end) == 2 &&
                     static_cast<std::size_t>(end) == shard.size();
  if (!whole || which < 1 || which > parts) {
    throw std::runtime_error(fmt::format("--shard \"{}\": expected which part of how many, such as 1/4", shard));
  }
  std::vector<const conformance::Rule*> part;
  for (std::size_t i = which - 1; i < rules.size(); i += parts) part.push_back(rules[i]);
  if (part.empty()) {
    throw std::runtime_error(fmt::format("--shard {}: there are only {} rules to share out", shard, rules.size()));
  }
  return part;
}

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
  std::string command = shell_word(program_as_typed()) + " run";
  if (!arguments.plugin.empty()) {
    command +=
        " --plugin " + shell_word(arguments.plugin.find('/') == std::string::npos ? plugin.load : arguments.plugin);
  }
  command += fmt::format(" --api v{}", api);
  if (!arguments.fabric.empty()) command += " --fabric " + shell_word(arguments.fabric);
  if (arguments.nic.kind != "roce") command += " --nic " + arguments.nic.kind;
  if (!arguments.nic.kernel.empty()) command += " --kernel " + shell_word(arguments.nic.kernel);
  if (arguments.nic.allow_host_changes) command += " --allow-host-changes";
  if (arguments.topology != "triangle") command += " --topology " + shell_word(arguments.topology);
  if (arguments.timeout_scale != 1) command += fmt::format(" --timeout-scale {}", arguments.timeout_scale);
  if (arguments.strict) command += " --strict";
  if (arguments.out_of_band) command += " --oob";
  if (!arguments.faults.asked().empty()) command += " --faults " + shell_word(arguments.faults.asked());
  return command + fmt::format(" --seed {}", seed);
}

/// Rules that --fail-fast left out were not forgotten.
void explain_left_out(report::Run& run) {
  for (report::RuleResult& rule : run.rules) {
    if (rule.verdict != report::Verdict::kMissing) continue;
    rule.verdict = report::Verdict::kSkip;
    rule.message = "not begun: --fail-fast, and another rule did not pass";
  }
}

report::Run run_version(const Work& work, Arguments& arguments, int api) {
  control::Limits limits;
  limits.call_seconds *= arguments.timeout_scale * arguments.nic.patience();
  limits.stop_fd = stop_fd();
  std::optional<faults::Schedule> faults;
  if (const faults::Script* script = arguments.faults.script()) {
    faults.emplace(*script, *work.ground.injector(), arguments.timeline.observer());
  }
  control::Session session(work.ground.launcher(), work.ground.subject(work.plugin.load, api), limits,
                           faults ? &*faults : arguments.timeline.observer());

  report::Run run;
  run.plugin_path = work.plugin.load;
  run.plugin_name = name_of(session, work.ground.paths().front(), work.plugin);
  run.apis = work.plugin.apis;
  run.api = api;
  run.seed = work.seed;
  work.console.begin(work.document, run, work.rules.size());

  conformance::RunSettings settings;
  settings.rules = work.rules;
  settings.paths = work.ground.paths();
  settings.library = work.plugin.library;
  settings.api = api;
  settings.limits = limits;
  settings.injector = work.ground.injector();
  settings.seed = work.seed;
  settings.strict = arguments.strict;
  settings.rerun = rerun_command(arguments, work.plugin, api, work.seed);
  settings.stop = &stop_on_signals();
  const std::string today = report::today();
  settings.on_result = [&](const report::RuleResult& result) {
    report::RuleResult rule = result;
    work.known.apply(rule, run, today);
    work.console.rule(rule);
    arguments.timeline.add(rule);
    if (arguments.fail_fast && report::is_bad(rule.verdict)) stop();
  };
  if (faults) {
    settings.on_begin = [&](const conformance::Rule& rule, const conformance::RulePath& path) {
      faults->begin_rule(rule.id, path.near, path.far);
    };
    settings.on_end = [&](report::RuleResult& result) { result.faults = faults->end_rule(result.id); };
    faults->begin_run();
  }
  const auto start = std::chrono::steady_clock::now();
  run.rules = conformance::run_rules(&session, conformance::catalogue(), settings);
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (faults) {
    faults->end_run();
    run.faults = faults->records();
    if (!stop_on_signals()) run.missed_faults = faults->missed();
    arguments.timeline.add(run.faults, faults->origin_ns());
  }
  for (report::RuleResult& rule : run.rules) work.known.apply(rule, run, today);
  if (stop_on_signals() && stop_signal() == 0) explain_left_out(run);
  run.idle_cpu_share = session.idle_cpu_share();
  work.console.end(run);
  return run;
}

/// As Place::enter(), with the way out where namespaces are barred.
std::optional<int> enter(Place& place, const Nic& nic) {
  try {
    return place.enter(nic);
  } catch (const netns::NamespacesForbidden& barred) {
    throw std::runtime_error(fmt::format("{}\n  or add --nic loopback, which needs no namespaces", barred.what()));
  }
}

/// The same command line in a virtual machine; what it writes there is put where the user wants it.
int run_in_guest(Arguments& arguments) {
  std::vector<std::string> paths = arguments.outputs.paths();
  if (!arguments.timeline.path().empty()) paths.push_back(arguments.timeline.path());
  const GuestOutcome outcome = cli::run_in_guest(arguments.nic, paths);
  arguments.outputs.put(outcome.results);
  if (const auto trace = outcome.results.find(arguments.timeline.path()); trace != outcome.results.end()) {
    arguments.timeline.put(trace->second);
  }
  return outcome.exit_code;
}

int run(Arguments& arguments) {
  auto rules = conformance::select_rules(conformance::catalogue(), arguments.patterns);
  if (!arguments.shard.empty()) rules = take_shard(rules, arguments.shard);
  if (arguments.list) {
    for (const conformance::Rule* rule : rules) fmt::print("{}\n", rule->id);
    return 0;
  }
  arguments.nic.check();
  const bool loopback = arguments.nic.kind == "loopback";
  if (loopback && (arguments.out_of_band || !arguments.fabric.empty())) {
    throw std::runtime_error("--nic loopback: there is no fabric: leave out --fabric and --oob");
  }
  if (!arguments.faults.asked().empty() && arguments.nic.kind != "roce") {
    throw std::runtime_error(fmt::format(
        "--faults: made in the NIC in user space and the links between hosts: leave out --nic {}", arguments.nic.kind));
  }
  if (!arguments.fabric.empty() && arguments.nic.kind != "roce") {
    throw std::runtime_error(fmt::format("--nic {}: fabric {} is up with NICs of its own, of the kind roce",
                                         arguments.nic.kind, arguments.fabric));
  }
  const bool nccl = arguments.loader == "nccl";
  if (!nccl && arguments.loader != "plugfest") {
    throw std::runtime_error(fmt::format("--loader \"{}\": there are plugfest and nccl", arguments.loader));
  }
  if (arguments.repeat < 1) throw std::runtime_error("--repeat: expected a whole number above 0");
  Place place = loopback                   ? Place::on_loopback(arguments.topology)
                : arguments.fabric.empty() ? Place::built(arguments.topology)
                                           : Place::live(arguments.fabric);
  const Plugin plugin = find_plugin(arguments.plugin);
  if (nccl && plugin.library.empty()) {
    throw std::runtime_error(fmt::format("--loader nccl: {} is part of NCCL, which has nothing to load", plugin.load));
  }
  std::vector<int> apis = choose_apis(plugin, arguments.api);
  const auto known =
      arguments.baseline.empty() ? report::KnownFindings() : report::KnownFindings::read(arguments.baseline);
  const std::uint64_t seed = arguments.seed ? *arguments.seed : std::random_device{}();
  arguments.faults.read(place.graph(), rules, seed);
  report::Document document = new_document(arguments.nic.kind, place.graph().name);
  arguments.outputs.open();
  arguments.timeline.open();

  if (arguments.nic.wants_guest()) return run_in_guest(arguments);
  if (const std::optional<int> exit_code = enter(place, arguments.nic)) return *exit_code;
  const std::atomic<bool>& stopped = stop_on_signals();
  conformance::Ground ground = place.ground(plugin.library.empty() || arguments.out_of_band);
  if (!arguments.fabric.empty()) ground.injector()->clean_up_when_killed();
  document.environment.layout = place.layout();
  report::Console console(stdout, report::Style::of(stdout));
  if (nccl) {
    document.loader =
        ask_nccl(ground, plugin, control::Limits{}.call_seconds * arguments.timeout_scale * arguments.nic.patience());
    console.loader(*document.loader);
    if (arguments.api.empty() && document.loader->api != 0)
      apis = choose_apis(plugin, fmt::to_string(document.loader->api));
  }
  const Work work{ground, plugin, rules, known, seed, console, document};
  for (int repetition = 0; repetition < arguments.repeat && !stopped; ++repetition) {
    for (const int api : apis) {
      if (!stopped) document.runs.push_back(run_version(work, arguments, api));
    }
  }
  console.flakes(document.runs);
  document.interrupted = stop_signal() != 0;
  arguments.outputs.write(document);
  arguments.timeline.write();
  if (stop_signal() != 0) return 128 + stop_signal();
  // A fault that was never there says nothing about the plugin, and must not look as if it had passed.
  const bool missed = std::any_of(document.runs.begin(), document.runs.end(),
                                  [](const report::Run& run) { return !run.missed_faults.empty(); });
  const int exit_code = missed ? 2 : report::summarize(document.runs).exit_code();
  return exit_code == 0 && document.loader && !document.loader->deviation.empty() ? 1 : exit_code;
}

}  // namespace

void add_run(Command program) {
  Command command = program.add_subcommand("run", "Judge a plugin, rule by rule, on a fabric made for it");
  auto arguments = std::make_shared<Arguments>();
  command
      .add_option("-p,--plugin", arguments->plugin,
                  "A libnccl-net.so, a name as in NCCL_NET_PLUGIN, nccl:IB or nccl:Socket; default: the bundled mesh "
                  "plugin")
      .type_name("PLUGIN");
  command.add_option("-r,--rule", arguments->patterns, "Only these: CN-06, or a pattern such as 'CN-*'; repeatable")
      .type_name("PATTERN");
  command.add_option("--api", arguments->api, "Version of the net interface: v6 to v12, or all; default: the newest")
      .type_name("VERSION");
  command.add_option("-t,--topology", arguments->topology, "Hosts and links to build; default: triangle")
      .type_name("NAME");
  command.add_option("--fabric", arguments->fabric, "Judge on a fabric that is up; see fabric up")
      .type_name("NAME")
      .excludes("--topology");
  command
      .add_option(
          "--loader", arguments->loader,
          "Who picks the version: plugfest, or nccl, NCCL 2.28.9 itself, which also starts and finalizes it once")
      .type_name("WHO");
  arguments->nic.add_options(command);
  check_seed(command.add_option("--seed", arguments->seed, "Repeats the random choices of an earlier run"))
      .type_name("N");
  check_timeout_scale(command.add_option("--timeout-scale", arguments->timeout_scale,
                                         "Multiplies the 10 s that a call may take (60 s with --nic vm)"))
      .type_name("X");
  command.add_flag("--strict", arguments->strict, "Broken [S] rules fail instead of warn");
  command.add_flag("--fail-fast", arguments->fail_fast, "Stop at the first rule that does not pass");
  command.add_option("--repeat", arguments->repeat, "Judge N times with one seed, and name the rules that are flaky")
      .type_name("N");
  command.add_option("--shard", arguments->shard, "Only part I of N parts of the rules").type_name("I/N");
  command
      .add_option("--baseline", arguments->baseline,
                  "Known findings, which are waived: a YAML or JSON list of rule, subject, reason, expires")
      .type_name("FILE");
  command.add_flag("--oob", arguments->out_of_band,
                   "Hosts also get oob0, a network without NICs that everybody reaches; always for nccl:*");
  command.add_flag("--list", arguments->list, "Print which rules would run");
  arguments->outputs.add_options(command, true);
  arguments->timeline.add_option(command);
  arguments->faults.add_option(command);
  command.set_body([arguments] { return run(*arguments); });
}

}  // namespace plugfest::cli
