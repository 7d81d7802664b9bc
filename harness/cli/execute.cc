// Second step of plugfest run: builds the test bed and runs the rules.
#include "harness/cli/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>

#include "conformance/rules/runner.h"
#include "fabric/system/clock.h"
#include "fabric/system/text.h"
#include "harness/bed/reduction.h"
#include "harness/bed/test_bed.h"
#include "harness/cli/stop.h"
#include "harness/cli/tool_launcher.h"
#include "harness/faults/schedule.h"
#include "harness/nccl/rank_environment.h"
#include "harness/report/console.h"
#include "harness/report/verdict.h"

namespace plugfest::cli {
namespace {

// Time limit for a rank in a debugger: a week.
constexpr double kUnlimitedSeconds = 7 * 24 * 3600;

// Calls a function from time to time, on a thread.
class Ticker {
 public:
  Ticker(std::chrono::seconds interval, std::function<void()> tick)
      : thread_([interval, tick = std::move(tick)](const std::stop_token& stop) {
          std::mutex mutex;
          std::condition_variable_any stopped;
          std::unique_lock lock(mutex);
          while (!stopped.wait_for(lock, stop, interval, [&] { return stop.stop_requested(); })) tick();
        }) {}

 private:
  std::jthread thread_;
};

// Maximum length of a device name in reports.
constexpr std::size_t kMaxNameBytes = 40;

// Returns the plugin's own name, or its file's name if a rank cannot load it; a rule then reports the reason.
std::string name_of(control::Session& session, const bed::RankPath& path, const Plugin& plugin) {
  try {
    control::Lease lease = session.lease();
    std::string name = lease.rank(path.near, {.state = control::RankState::kLoaded}).library().name;
    lease.release(true);
    return name;
  } catch (const std::exception&) {
    return std::filesystem::path(plugin.load).filename().string();
  }
}

// What happened when a plugin was started.
struct Start {
  // Why it cannot be used; "" if it can, or if it cannot even be loaded: a rule then reports the reason.
  std::string refusal;
  // What the stand-ins for a GPU lack, so that they ended the process; "": nothing.
  std::string lacking;
};

// Starts the plugin in a rank and counts its devices.
Start start_plugin(bed::TestBed& bed, const control::Subject& subject, const control::Limits& limits) {
  control::Session session(bed.launcher(), subject, limits);
  control::Lease lease = session.lease();
  try {
    control::Rank rank = lease.rank(bed.paths().front().near);
    return {rank.devices() > 0 ? "" : fmt::format("rank {}: devices() wrote 0", rank.name()), ""};
  } catch (const control::Deviation& deviation) {
    Start start{deviation.what(), ""};
    for (const control::RankEvidence& rank : lease.evidence().ranks)
      if (start.lacking.empty()) start.lacking = nccl::missing_stand_in(rank.output);
    return start;
  } catch (const control::Unusable&) {
    return {};
  }
}

// For a plugin without devices. Errors: std::runtime_error if it starts only with a GPU, or if it needs more of a GPU
// than the stand-ins have. One line then stands for all rules.
void require_start(bed::TestBed& bed, control::Subject subject, const control::Limits& limits, bool emulates_gpu) {
  if (!std::filesystem::exists(nccl::stand_in_driver())) return;
  const Start start = start_plugin(bed, subject, limits);
  if (start.refusal.empty()) return;
  if (!start.lacking.empty())
    throw std::runtime_error(fmt::format("{}: --emulate-gpu has no stand-in for {}", subject.plugin, start.lacking));
  if (emulates_gpu) return;
  nccl::add_stand_ins(subject.environment);
  const Start with_gpu = start_plugin(bed, subject, limits);
  if (!with_gpu.lacking.empty())
    throw std::runtime_error(fmt::format("{}: {}; if it needs a GPU: --emulate-gpu has no stand-in for {}",
                                         subject.plugin, start.refusal, with_gpu.lacking));
  if (!with_gpu.refusal.empty()) return;
  throw std::runtime_error(fmt::format("{}: {}; with stand-ins for a GPU the plugin starts: add --emulate-gpu",
                                       subject.plugin, start.refusal));
}

// Whether `version` is the first of `versions` with its interface.
bool is_first(const PluginVersion& version, const std::vector<PluginVersion>& versions) {
  const auto first = std::find_if(versions.begin(), versions.end(),
                                  [&](const PluginVersion& other) { return other.interface == version.interface; });
  return first != versions.end() && first->api == version.api;
}

// The command that repeats the run of one version.
Again again(const PreparedRun& run, const PluginVersion& version, bool with_faults) {
  Again command;
  if (!run.topology.empty()) command.with("--topology", run.topology);
  command.without({"--interface", "--for"});
  if (!with_faults) command.without({"--faults"});
  if (version.interface != plugin::InterfaceKind::kNet)
    command.with("--interface", std::string(plugin::interface_of(version.interface).name));
  return command.with("--api", fmt::format("v{}", version.api)).with("--seed", fmt::to_string(run.seed));
}

// Returns the command that repeats a rule that ran with faults, without variables.
std::string again_after_faults(const RunArguments& arguments, const PreparedRun& run, const PluginVersion& version,
                               const report::RuleResult& result) {
  const std::vector<faults::Entry>& entries = arguments.faults.script()->entries;
  const auto any = [&](const auto& predicate) { return std::any_of(entries.begin(), entries.end(), predicate); };
  const auto was_hit_at_a_time = [&](const faults::Entry& entry) {
    return entry.at && std::any_of(result.faults.begin(), result.faults.end(),
                                   [&](const report::FaultRecord& fault) { return fault.source == entry.source; });
  };
  const bool needs_faults = any([&](const faults::Entry& entry) { return faults::applies(entry, result.id); });
  Again command = again(run, version, needs_faults);
  if (!any(was_hit_at_a_time)) return command.with("--rule", result.id).command();
  // The rule starts at the same time only after the same rules.
  if (!arguments.shard.empty()) command.with("--shard", arguments.shard);
  return command.command();
}

bool has_out_of_band(const RunArguments& arguments, const PreparedRun& run) {
  const std::optional<live::Record>& record = run.bed.record();
  return run.plugin.library.empty() || arguments.bed.out_of_band || runs_nccl(arguments) ||
         (record && record->out_of_band);
}

// With --path: a rank on each host that has neither of the two interfaces. Its plugin may relay.
class RelayRanks {
 public:
  RelayRanks(bed::TestBed& bed, const control::Subject& subject, const control::Limits& limits)
      : session_(bed.launcher(), subject, limits), lease_(session_.lease()) {
    const bed::RankPath& path = bed.paths().front();
    for (const std::string& host : bed.hosts().ranks)
      if (host != control::host_of(path.near) && host != control::host_of(path.far)) lease_.rank(host);
  }

 private:
  control::Session session_;
  control::Lease lease_;
};

// The versions and repetitions of one command on one test bed.
class Execution {
 public:
  Execution(RunArguments& arguments, PreparedRun& run, report::Console& console, bool progress_on_terminal)
      : arguments_(arguments),
        run_(run),
        bed_(run.bed.bed()),
        console_(console),
        progress_on_terminal_(progress_on_terminal) {}

  void run_all() {
    for (int repetition = 0; repetition < arguments_.repeat; ++repetition) {
      for (const PluginVersion& version : run_.versions) {
        if (ended()) return;
        try {
          run_.document.runs.push_back(run_version(version));
        } catch (const control::Interrupted&) {
          return;  // before the first rule
        }
      }
    }
  }

 private:
  // Whether a signal or --maxfail ends the command.
  bool ended() const {
    return stop_signal() != 0 || (arguments_.max_failures != 0 && failures_ >= arguments_.max_failures);
  }

  report::Run run_version(const PluginVersion& version) {
    std::optional<faults::Schedule> faults;
    if (const faults::Script* script = arguments_.faults.script())
      faults.emplace(*script, *bed_.injector(), arguments_.timeline.observer());
    control::Limits limits;
    limits.call_seconds = run_.bed.call_seconds();
    limits.stop_fd = stop_fd();
    control::Subject subject = bed_.subject(run_.plugin.load, version.api, version.interface);
    bed::report_lost_peers_soon(subject.environment);
    if (arguments_.emulate_gpu) nccl::add_stand_ins(subject.environment);

    report::Run run = new_run(version);
    examine_plugin(subject, limits, run);
    if (attaches_to_rank(arguments_.wrap)) limits.call_seconds = kUnlimitedSeconds;
    // With faults, a call may wait for a retransmission.
    if (!arguments_.patient && !faults && arguments_.wrap.empty())
      limits.blocked_seconds = control::Limits::kBlockedShare * limits.call_seconds;
    std::optional<RelayRanks> relays;
    if (!arguments_.bed.path.empty()) relays.emplace(bed_, subject, limits);
    ToolLauncher launcher(bed_.launcher(), arguments_.wrap);
    control::Session session(launcher, std::move(subject), limits, faults ? &*faults : arguments_.timeline.observer());
    console_.begin(run_.document, run, count_rules(version.interface));

    conformance::RunSettings settings = settings_for(run, version);
    if (arguments_.captures.wanted()) capture_rules(settings);
    if (faults) inject_faults(settings, version, *faults);
    run_rules(session, settings, faults ? &*faults : nullptr, run);
    console_.end(run);
    return run;
  }

  report::Run new_run(const PluginVersion& version) const {
    const bool is_net = version.interface == plugin::InterfaceKind::kNet;
    report::Run run;
    run.plugin_path = run_.plugin.load;
    run.interface = plugin::interface_of(version.interface).name;
    run.apis = is_net ? run_.plugin.apis : run_.plugin.others.at(version.interface);
    run.api = version.api;
    run.seed = run_.seed;
    return run;
  }

  std::size_t count_rules(plugin::InterfaceKind interface) const {
    return static_cast<std::size_t>(
        std::count_if(run_.rules.begin(), run_.rules.end(),
                      [&](const conformance::Rule* rule) { return rule->apis.is_about(interface); }));
  }

  void run_rules(control::Session& session, const conformance::RunSettings& settings, faults::Schedule* faults,
                 report::Run& run) {
    if (faults != nullptr) faults->begin_run();
    const std::uint64_t packets_before = run.transport ? bed::sent_packets(bed_) : 0;
    const Stopwatch watch;
    {
      const Ticker ticker(std::chrono::seconds(progress_on_terminal_ ? 1 : 10), [this] { show_progress(); });
      run.rules = conformance::run_rules(&session, conformance::catalog(), settings);
    }
    run.seconds = watch.seconds();
    // Only now all variables that the plugin reads are known.
    run.environment = plugin_variables();
    for (const std::string& variable : arguments_.environment) {
      const std::string name = variable.substr(0, variable.find('=') + 1);
      if (std::none_of(run.environment.begin(), run.environment.end(),
                       [&](const std::string& known) { return known.starts_with(name); }))
        run.environment.push_back(without_secret(variable));
    }
    for (report::RuleResult& result : run.rules) result.rerun = Again::variables() + result.rerun;
    if (faults != nullptr) add_faults(run, *faults);
    run.idle_cpu_share = session.idle_cpu_share();
    if (run.transport) run.transport->packets = bed::sent_packets(bed_) - packets_before;
  }

  void show_progress() {
    const std::lock_guard lock(printing_);
    if (progress_on_terminal_) return console_.refresh();
    const std::string text = console_.progress_text();
    const bool wanted = !arguments_.console.quiet() && arguments_.wrap.empty();  // a debugger may use the terminal
    if (wanted && !text.empty()) std::fputs(fmt::format("plugfest: {}\n", text).c_str(), stderr);
  }

  // Determines the plugin's name, devices and libibverbs, in separate ranks.
  void examine_plugin(control::Subject& subject, const control::Limits& limits, report::Run& run) {
    control::Session session(bed_.launcher(), subject, limits);
    run.plugin_name = name_of(session, bed_.paths().front(), run_.plugin);
    if (subject.interface != plugin::InterfaceKind::kNet) return;
    for (const bed::DeviceMatch& match : run_.bed.find_devices(subject, session)) {
      run.devices.push_back(
          {match.rank, shortened(match.device.name, kMaxNameBytes), match.device.index, match.found_by});
    }
    if (run.devices.empty()) require_start(bed_, subject, limits, arguments_.emulate_gpu);
    if (run.devices.empty() || run_.bed.nic().name() != "roce") return;
    const bed::VerbsLibrary library = bed::verbs_library(session, bed_);
    run.transport = {.verbs_library = library.path, .is_nic = library.is_nic};
  }

  conformance::RunSettings settings_for(const report::Run& run, const PluginVersion& version) {
    conformance::RunSettings settings;
    settings.rules = run_.rules;
    settings.paths = bed_.paths();
    settings.hosts = bed_.hosts();
    settings.library = run_.plugin.library;
    settings.api = run.api;
    settings.interface = version.interface;
    settings.injector = bed_.injector();
    settings.thorough = arguments_.thorough;
    settings.gpu = arguments_.emulate_gpu || std::filesystem::exists("/dev/nvidiactl");
    if (runs_nccl(arguments_)) {
      settings.nccl = {.bed = &bed_,
                       .plugin = run_.plugin.load,
                       .seconds = conformance::NcclSetting::kCallsOfOperation * run_.bed.call_seconds(),
                       .stop_fd = stop_fd()};
      // NCCL selects the version itself, so one run is enough.
      if (!is_first(version, run_.versions))
        std::erase_if(settings.rules, [](const conformance::Rule* rule) { return rule->declaration.runs_nccl; });
    }
    settings.seed = run_.seed;
    settings.strict = arguments_.strict;
    settings.known = run_.known.about(run.plugin_path, run.plugin_name);
    settings.max_failures = static_cast<std::size_t>(std::max(0, arguments_.max_failures - failures_));
    settings.rerun = again(run_, version, true).without({"--rule"}).command();
    if (!has_out_of_band(arguments_, run_) && run_.bed.nic().support().out_of_band) {
      settings.advice_if_unreachable =
          "a host has no route to an address of another host: add --oob, a network without NICs that all hosts reach";
    }
    settings.stop = &stop_on_signals();
    settings.on_begin = [this](const conformance::Rule& rule, const bed::RankPath&) {
      const std::lock_guard lock(printing_);
      console_.started(rule.id);
    };
    settings.on_result = [this](const report::RuleResult& result) {
      if (report::is_bad(result.verdict)) ++failures_;
      const std::lock_guard lock(printing_);
      console_.rule(result);
      arguments_.timeline.add(result);
    };
    return settings;
  }

  void capture_rules(conformance::RunSettings& settings) {
    const std::size_t number = run_.document.runs.size();
    settings.one_at_a_time = true;
    settings.on_begin = [this, number, shown = settings.on_begin](const conformance::Rule& rule,
                                                                  const bed::RankPath& path) {
      shown(rule, path);
      arguments_.captures.begin(bed_, number, rule.id);
    };
    settings.on_end = [this, number](report::RuleResult& result) { arguments_.captures.end(bed_, number, result); };
  }

  void inject_faults(conformance::RunSettings& settings, const PluginVersion& version, faults::Schedule& faults) {
    settings.on_begin = [&faults, shown = settings.on_begin](const conformance::Rule& rule, const bed::RankPath& path) {
      shown(rule, path);
      faults.begin_rule(rule.id, path.near, path.far);
    };
    settings.on_end = [this, &faults, version, capture = settings.on_end](report::RuleResult& result) {
      if (capture) capture(result);
      result.faults = faults.end_rule(result.id);
      result.rerun = again_after_faults(arguments_, run_, version, result);
    };
    settings.runs_alone = [this](const conformance::Rule& rule) {
      const std::vector<faults::Entry>& entries = arguments_.faults.script()->entries;
      return std::any_of(entries.begin(), entries.end(),
                         [&](const faults::Entry& entry) { return entry.on && faults::applies(entry, rule.id); });
    };
  }

  void add_faults(report::Run& run, faults::Schedule& faults) {
    faults.end_run();
    run.faults = faults.records();
    if (!ended()) run.missed_faults = faults.missed();
    run.ineffective_faults = faults.ineffective();
    arguments_.timeline.add(run.faults, faults.origin_ns());
  }

  RunArguments& arguments_;
  PreparedRun& run_;
  bed::TestBed& bed_;
  report::Console& console_;
  const bool progress_on_terminal_;
  std::mutex printing_;
  // Bad verdicts of all versions and repetitions.
  int failures_ = 0;
};

}  // namespace

void execute(RunArguments& arguments, PreparedRun& run) {
  stop_on_signals();
  protect_from_plugins();
  bed::TestBed& bed = run.bed.build(has_out_of_band(arguments, run));
  if (run.bed.record()) bed.injector()->clean_up_when_killed();
  const bool reduces = std::any_of(run.versions.begin(), run.versions.end(), [](const PluginVersion& version) {
    return version.interface == plugin::InterfaceKind::kCollNet;
  });
  if (reduces && !run.bed.record() && run.bed.nic().support().reduction && bed::can_reduce(bed.graph()))
    bed.start_reduction();
  run.document.fabric = fabric_record(bed.graph());
  run.document.environment.layout = run.bed.nic().layout();
  std::FILE* const stream = arguments.outputs.text_stream();
  report::Style style = arguments.console.style(stream);
  style.only_run = arguments.repeat == 1;
  style.progress = style.progress && arguments.wrap.empty();
  report::Console console(stream, style);
  Execution(arguments, run, console, style.progress).run_all();
  console.flakes(run.document.runs);
  arguments.captures.add_to(run.document);
  run.document.stop_signal = stop_signal();
}

}  // namespace plugfest::cli
