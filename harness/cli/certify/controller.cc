#include "harness/cli/certify/controller.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <utility>

#include "conformance/rules/runner.h"
#include "fabric/netns/sandbox.h"
#include "fabric/system/clock.h"
#include "fabric/system/process.h"
#include "fabric/system/text.h"
#include "harness/cli/options.h"
#include "harness/cli/stop.h"
#include "harness/cli/subject.h"
#include "harness/cluster/agents/hub.h"
#include "harness/cluster/archive.h"
#include "harness/cluster/certification.h"
#include "harness/plugin/resolve.h"
#include "harness/report/formats.h"
#include "harness/report/text.h"
#include "harness/report/verdict.h"
#include "version.h"

namespace plugfest::cli {
namespace {

class Controller {
 public:
  Controller(CertifyArguments& arguments, const std::optional<JobTask>& task)
      : arguments_(arguments),
        task_(task),
        plugin_(find_plugin(arguments.plugin)),
        api_(choose_apis(plugin_, arguments.api).front()),
        rules_(arguments.skips("rules") ? std::vector<const conformance::Rule*>()
                                        : conformance::select_rules(conformance::catalog(), arguments.patterns)),
        seed_(chosen_seed(arguments.seed)),
        output_(arguments.output) {
    // Rules that run NCCL itself need hosts of an emulated fabric.
    std::erase_if(rules_, [](const conformance::Rule* rule) {
      return rule->apis.interface != plugin::InterfaceKind::kNet || rule->declaration.runs_nccl ||
             rule->declaration.thorough;
    });
    if (!arguments.hosts.empty()) expected_ = read_host_file(arguments.hosts);
    known_ = arguments.known_findings();
    address_ = address_of_interface(arguments.interface);
  }

  int run() {
    if (task_ && task_->ends_with_host && !report::is_standard_output(arguments_.output)) {
      if (const std::optional<int> exit_code = detached_.start(arguments_.output + ".log")) return *exit_code;
    }
    if (const std::optional<int> exit_code = netns::contain_processes()) return *exit_code;
    stop_on_signals();
    cluster::Hub hub({.address = address_, .host_seconds = arguments_.host_seconds});
    const JobWatch watch(detached_, hub, arguments_.host_seconds);
    AgentStarter starter;
    std::optional<MeetingFile> meeting_file;
    start_agents(hub, starter, meeting_file);
    meeting_file.reset();
    control::Limits limits;
    limits.call_seconds *= arguments_.timeout_scale;
    limits.stop_fd = stop_fd();
    {
      control::Session session(hub, subject(), limits);
      cluster::examine_hosts(certification_, hub, session, expected_, plugin_.library, stopped);
    }
    explain_absent(starter);
    print_preflight();
    report::Document document = new_document("system", fmt::format("{} hosts", certification_.hosts.size()));
    if (certification_.nics.size() >= 2) {
      control::Session session(hub, subject(), limits);
      run_rules(document, session);
      measure(hub, session);
    }
    cluster::find_suspects(certification_, [&](const std::string& host) { return hub.loss_of(host); });
    cluster::record_cost(certification_, hub);
    certification_.interrupted |= stop_signal() != 0;
    document.stop_signal = stop_signal();
    document.pairs = cluster::pair_results(certification_);
    document.curves = cluster::soak_curves(certification_);
    print_result();
    const int of_rules = document.runs.empty() ? 0 : report::summarize(document.runs).exit_code();
    document.certification = cluster::record_of(certification_);
    document.certification->exit_code = std::max(document.certification->exit_code, of_rules);
    write(document);
    return document.certification->exit_code;
  }

 private:
  static bool stopped() { return stop_signal() != 0; }

  void start_agents(cluster::Hub& hub, AgentStarter& starter, std::optional<MeetingFile>& meeting_file) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    std::size_t count = expected_.size();
    hub.expect(expected_);
    if (task_) {
      if (count == 0) count = task_->hosts;
      meeting_file.emplace(arguments_.meeting, hub.meeting());
      const std::string name = arguments_.name.empty() ? own_host_name() : arguments_.name;
      starter.start(name, fmt::format("exec {} certify --agent --name {}", shell_word(self), shell_word(name)),
                    hub.meeting());
    } else {
      const std::string program = arguments_.remote_program.empty() ? self : arguments_.remote_program;
      for (const std::string& host : expected_) {
        starter.start(host,
                      fmt::format("exec {} {} {} certify --agent --name {}", arguments_.launch_agent, shell_word(host),
                                  shell_word(program), shell_word(host)),
                      hub.meeting());
      }
    }
    fmt::print("plugfest {}: {} v{}, waiting for {} at {}, seed {}\n", PLUGFEST_VERSION, plugin_.load, api_,
               counted(count, "host"), address_, seed_);
    std::fflush(stdout);
    // Stops waiting for hosts whose agents can no longer join.
    const auto cannot_join = [&] {
      if (stopped()) return true;
      const auto joined = hub.hosts();
      bool all_there = true;
      for (const std::string& host : expected_) {
        if (joined.contains(host)) continue;
        if (!starter.has_ended(host)) return false;
        all_there = false;
      }
      return !expected_.empty() && !all_there;
    };
    if (!hub.wait_for(count, arguments_.join_seconds, cannot_join) && task_ && expected_.empty()) {
      const std::size_t joined = hub.hosts().size();
      if (joined < count) {
        certification_.suspects.push_back({"host", "?",
                                           fmt::format("{} of {} have not joined; --hosts FILE gives their names",
                                                       count - joined, counted(count, "host"))});
      }
    }
  }

  // Adds the output of the commands that started agents to the hosts that never joined.
  void explain_absent(AgentStarter& starter) {
    for (cluster::HostRecord& host : certification_.hosts) {
      if (host.joined) continue;
      const std::string words = starter.last_output(host.name);
      host.problem = starter.has_ended(host.name)
                         ? fmt::format("host {}: its agent has ended: {}", host.name, words)
                         : fmt::format("host {} has not joined within {:g} s{}", host.name, arguments_.join_seconds,
                                       words.empty() ? "" : ": " + words);
    }
  }

  control::Subject subject() const {
    control::Subject subject{.plugin = plugin_.load, .api = api_};
    if (!plugin_.library.empty())
      for (const auto& [name, value] : plugin::sanitizer_environment(plugin_.load))
        subject.environment.emplace_back(name, value);
    for (const cluster::Nic& nic : certification_.nics) subject.devices[nic.name] = nic.device;
    return subject;
  }

  void print_preflight() {
    for (const cluster::HostRecord& host : certification_.hosts)
      if (!host.problem.empty()) fmt::print("  {}\n", report::printable(host.problem));
    for (const cluster::Difference& difference : certification_.differences)
      fmt::print("  differs: {}\n", report::printable(difference.text()));
    fmt::print("preflight: {}, {}, {:.1f} s\n", counted(certification_.hosts.size(), "host"),
               counted(certification_.nics.size(), "NIC"), certification_.seconds["preflight"]);
    std::fflush(stdout);
  }

  // Pairs of NICs on which rules run: on two adjacent hosts of the list, and on its first and last host.
  std::vector<bed::RankPath> rule_paths() const {
    std::vector<const cluster::Nic*> first;
    std::set<std::string> hosts;
    for (const cluster::Nic& nic : certification_.nics)
      if (hosts.insert(nic.host).second) first.push_back(&nic);
    std::vector<bed::RankPath> paths;
    if (first.size() >= 2) paths.push_back({first[0]->name, first[1]->name});
    if (first.size() >= 3) paths.push_back({first.front()->name, first.back()->name});
    return paths;
  }

  // Hosts for rules with more than two ranks.
  bed::RankGroup group() const {
    constexpr std::size_t kMaxHosts = 4;
    bed::RankGroup group;
    std::vector<std::string> nics;
    for (const cluster::Nic& nic : certification_.nics) {
      if (nic.rail != 0 || nics.size() >= kMaxHosts) continue;
      group.ranks.push_back(nic.host);
      nics.push_back(nic.name);
    }
    for (std::size_t i = 0; i < nics.size(); ++i) {
      group.interfaces.emplace_back(nics.size(), nics[i]);
      group.interfaces.back()[i] = "";
    }
    return group;
  }

  void run_rules(report::Document& document, control::Session& session) {
    if (rules_.empty()) return;
    report::Console console(stdout, report::Style::of(stdout));
    for (const bed::RankPath& path : rule_paths()) {
      if (stopped()) return;
      report::Run run;
      run.plugin_path = plugin_.load;
      run.plugin_name = certification_.plugin_name;
      run.apis = plugin_.apis;
      run.api = api_;
      run.seed = seed_;
      run.environment = plugin_variables();
      fmt::print("rules on {} and {}\n", path.near, path.far);
      console.begin(document, run, rules_.size());
      conformance::RunSettings settings;
      settings.rules = rules_;
      settings.paths = {path};
      settings.hosts = group();
      settings.library = plugin_.library;
      settings.api = api_;
      settings.seed = seed_;
      settings.strict = arguments_.strict;
      settings.known = known_.about(run.plugin_path, run.plugin_name);
      settings.rerun = fmt::format("{} run --plugin {} --api v{} --seed {}", program_as_typed(),
                                   shell_word(plugin_.load), api_, seed_);
      settings.stop = &stop_on_signals();
      settings.on_result = [&](const report::RuleResult& result) { console.rule(result); };
      const Stopwatch watch;
      run.rules = conformance::run_rules(&session, conformance::catalog(), settings);
      run.seconds = watch.seconds();
      certification_.seconds["rules"] += run.seconds;
      console.end(run);
      document.runs.push_back(std::move(run));
    }
  }

  void measure(cluster::Hub& hub, control::Session& session) {
    cluster::CertifySettings settings;
    settings.pair = {.seconds = arguments_.pair_seconds, .seed = seed_};
    settings.load.seconds = arguments_.load_seconds;
    settings.loads = !arguments_.skips("loads");
    settings.soak_seconds = 60 * arguments_.soak_minutes;
    settings.subject = subject();
    settings.call_seconds *= arguments_.timeout_scale;
    settings.host_seconds = arguments_.host_seconds;
    settings.rounds = static_cast<std::size_t>(arguments_.rounds);
    settings.width = static_cast<std::size_t>(arguments_.width);
    settings.stop = stopped;
    settings.progress = [](const std::string& line) {
      fmt::print("{}\n", report::printable(line));
      std::fflush(stdout);
    };
    cluster::measure(certification_, hub, session, settings);
  }

  void print_result() {
    for (const cluster::Suspect& suspect : certification_.suspects)
      fmt::print("{:<7} {}  {}\n", suspect.kind, suspect.subject, report::printable(suspect.why));
    const auto broken = std::count_if(certification_.pairs.begin(), certification_.pairs.end(),
                                      [](const cluster::PairRecord& pair) { return !pair.outcome.broken.empty(); });
    fmt::print("{}, {} broken; {}, {} bytes of control traffic\n", counted(certification_.pairs.size(), "pair"), broken,
               counted(certification_.counters.messages, "message"), certification_.counters.bytes);
  }

  void write(const report::Document& document) {
    cluster::Manifest manifest;
    manifest.version = PLUGFEST_VERSION;
    manifest.commit = PLUGFEST_COMMIT;
    manifest.command = own_arguments();
    manifest.written =
        fmt::format("{:%FT%TZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
    manifest.plugin_path = plugin_.load;
    manifest.plugin_sha256 = cluster::sha256_of_file(plugin_.library);
    manifest.tool_sha256 = cluster::sha256_of_file("/proc/self/exe");
    for (const conformance::Rule* rule : rules_) manifest.rules.emplace_back(rule->id);
    manifest.runs = rules_.empty() ? 0 : rule_paths().size();
    manifest.waivers = known_.about(plugin_.load, certification_.plugin_name).all();
    std::vector<cluster::ArchiveFile> files = {{"certification.json", certification_.json()},
                                               {"results.json", report::to_json(document)},
                                               {"report.html", report::to_html(document)}};
    for (const cluster::HostRecord& host : certification_.hosts)
      if (host.joined) files.push_back({fmt::format("hosts/{}.json", host.name), host.facts});
    const std::string archive = cluster::make_archive(manifest, files);
    output_.write(archive);
    fmt::print("{}: SHA-256 {}\n", arguments_.output, cluster::sha256_hex(archive));
  }

  CertifyArguments& arguments_;
  const std::optional<JobTask>& task_;
  Detached detached_;
  const Plugin plugin_;
  const int api_;
  std::vector<const conformance::Rule*> rules_;
  const std::uint64_t seed_;
  report::OutputFile output_;
  std::vector<std::string> expected_;
  report::KnownFindings known_;
  std::string address_;
  cluster::Certification certification_;
};

}  // namespace

int certify_hosts(CertifyArguments& arguments, const std::optional<JobTask>& task) {
  return Controller(arguments, task).run();
}

}  // namespace plugfest::cli
