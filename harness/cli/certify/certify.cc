// plugfest certify: judges and measures a plugin on the hosts of a real cluster.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <future>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "conformance/rules/runner.h"
#include "conformance/rules/select.h"
#include "fabric/netns/sandbox/sandbox.h"
#include "fabric/system/clock.h"
#include "fabric/system/text.h"
#include "harness/certify/agent/agent.h"
#include "harness/certify/archive/archive.h"
#include "harness/certify/certification.h"
#include "harness/certify/hub/hub.h"
#include "harness/certify/wire/token.h"
#include "harness/cli/certify/agents.h"
#include "harness/cli/certify/detached.h"
#include "harness/cli/command.h"
#include "harness/cli/options/numbers.h"
#include "harness/cli/options/outputs.h"
#include "harness/cli/options/rule_options.h"
#include "harness/cli/options/subject.h"
#include "harness/cli/stop.h"
#include "harness/plugin/sanitizer.h"
#include "harness/report/console.h"
#include "harness/report/formats/json.h"
#include "harness/report/formats/json_text.h"
#include "harness/report/output_file.h"
#include "harness/report/text.h"
#include "harness/report/verdict.h"
#include "harness/report/web/html.h"
#include "version.h"

namespace plugfest::cli {
namespace {

constexpr const char* kSsh = "ssh -o BatchMode=yes -o ConnectTimeout=20";

struct Arguments : RuleOptions {
  std::string api;
  std::string hosts;
  std::string launch_agent = kSsh;
  std::string remote_program;
  std::string interface;
  std::string meeting;
  std::string output = "certification.tar";
  std::vector<std::string> skip;
  double join_seconds = 60;
  double host_seconds = 20;
  double pair_seconds = 0.2;
  double load_seconds = 5;
  int width = 0;
  int rounds = 0;
  int fan_out = 32;
  bool is_agent = false;
  std::string name;

  bool skips(const std::string& phase) const { return std::find(skip.begin(), skip.end(), phase) != skip.end(); }
};

std::string own_host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown";
  return std::string(name).substr(0, std::string(name).find('.'));
}

/// --agent: what the controller's command starts on each host.
int serve_as_agent(const Arguments& arguments, const std::optional<certify::Meeting>& known = std::nullopt) {
  certify::Meeting meeting;
  if (known) {
    meeting = *known;
  } else {
    char line[256];
    if (std::fgets(line, sizeof line, stdin) == nullptr) {
      throw std::runtime_error(
          "--agent: expected where the controller is on standard input; plugfest certify --hosts "
          "starts agents itself");
    }
    meeting = certify::Meeting::parse(line);
  }
  const std::string name = arguments.name.empty() ? own_host_name() : arguments.name;
  if (const std::optional<int> exit_code = netns::contain_processes()) return *exit_code;
  certify::run_agent(meeting, name, PLUGFEST_VERSION, -1, true);
  return 0;
}

/// When mpirun has ended the job, the certification goes on if a host is lost, which is then the reason. Otherwise the
/// user has ended it.
class JobWatch {
 public:
  JobWatch(const Detached& task, const certify::Hub& hub, double host_seconds)
      : thread_([this, &task, &hub, host_seconds] { run(task, hub, host_seconds); }) {}
  ~JobWatch() {
    done_.set_value();
    thread_.join();
  }
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

 private:
  void run(const Detached& task, const certify::Hub& hub, double host_seconds) {
    static constexpr std::chrono::milliseconds kPoll(100);
    const auto is_done = [done = done_.get_future()] { return done.wait_for(kPoll) == std::future_status::ready; };
    while (!task.job_has_ended()) {
      if (is_done()) return;
    }
    // It takes the hub some time to notice that a host is lost.
    const Nanoseconds deadline = now_ns() + static_cast<Nanoseconds>((host_seconds + 1) * 1e9);
    while (now_ns() < deadline) {
      for (const auto& [name, host] : hub.hosts()) {
        if (host.lost.empty()) continue;
        fmt::print("the job has ended because host {} is lost; the certification goes on\n", name);
        std::fflush(stdout);
        return;
      }
      if (is_done()) return;
    }
    kill(getpid(), SIGTERM);
  }

  std::promise<void> done_;
  std::thread thread_;
};

/// One certification, from the first agent to the archive.
class Controller {
 public:
  Controller(Arguments& arguments, std::optional<JobTask> task)
      : arguments_(arguments),
        task_(std::move(task)),
        plugin_(find_plugin(arguments.plugin)),
        api_(choose_apis(plugin_, arguments.api).front()),
        rules_(arguments.skips("rules") ? std::vector<const conformance::Rule*>()
                                        : conformance::select_rules(conformance::catalogue(), arguments.patterns)),
        seed_(arguments.chosen_seed()),
        output_(arguments.output) {
    // Rules that run NCCL itself need hosts of an emulated fabric.
    std::erase_if(rules_, [](const conformance::Rule* rule) {
      return rule->apis.interface != plugin::InterfaceKind::kNet || rule->clause.runs_nccl || rule->clause.thorough;
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
    certify::Hub hub({.address = address_,
                      .host_seconds = arguments_.host_seconds,
                      .fan_out = static_cast<std::size_t>(arguments_.fan_out)});
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
      certify::examine_hosts(certification_, hub, session, expected_, plugin_.library);
    }
    explain_absent(starter);
    print_preflight();
    report::Document document = new_document("system", fmt::format("{} hosts", certification_.hosts.size()));
    if (certification_.nics.size() >= 2) {
      control::Session session(hub, subject(), limits);
      judge(document, hub, session, limits);
      measure(hub, session);
    }
    certify::find_suspects(certification_, hub);
    certification_.interrupted |= stop_signal() != 0;
    document.stop_signal = stop_signal();
    document.pairs = certify::pair_results(certification_);
    print_result();
    write(document);
    const int of_rules = document.runs.empty() ? 0 : report::exit_code(document);
    return std::max(certification_.exit_code(), of_rules);
  }

 private:
  static bool stopped() { return stop_signal() != 0; }

  void start_agents(certify::Hub& hub, AgentStarter& starter, std::optional<MeetingFile>& meeting_file) {
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
    // Waits no longer for hosts whose agents cannot come any more.
    const auto in_vain = [&] {
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
    if (!hub.wait_for(count, arguments_.join_seconds, in_vain) && task_ && expected_.empty()) {
      const std::size_t joined = hub.hosts().size();
      for (std::size_t i = joined; i < count; ++i) {
        certification_.suspects.push_back({"host", "?",
                                           fmt::format("{} of {} have not joined; with --hosts FILE they get names",
                                                       count - joined, counted(count, "host"))});
        break;
      }
    }
  }

  /// Adds what the commands that started agents have printed to the hosts that never joined.
  void explain_absent(AgentStarter& starter) {
    for (certify::HostRecord& host : certification_.hosts) {
      if (host.joined) continue;
      const std::string words = starter.last_words(host.name);
      host.problem = starter.has_ended(host.name)
                         ? fmt::format("host {}: its agent has ended: {}", host.name, words)
                         : fmt::format("host {} has not joined within {:g} s{}", host.name, arguments_.join_seconds,
                                       words.empty() ? "" : ": " + words);
    }
  }

  control::Subject subject() const {
    control::Subject subject{.plugin = plugin_.load, .api = api_};
    if (!plugin_.library.empty()) {
      for (const auto& [name, value] : plugin::sanitizer_environment(plugin_.load))
        subject.environment.emplace_back(name, value);
    }
    for (const certify::Nic& nic : certification_.nics) subject.devices[nic.name] = nic.device;
    return subject;
  }

  void print_preflight() {
    for (const certify::HostRecord& host : certification_.hosts) {
      if (!host.problem.empty()) fmt::print("  {}\n", host.problem);
    }
    for (const certify::Difference& it : certification_.differences) fmt::print("  differs: {}\n", it.text());
    fmt::print("preflight: {}, {}, {:.1f} s\n", counted(certification_.hosts.size(), "host"),
               counted(certification_.nics.size(), "NIC"), certification_.seconds["preflight"]);
    std::fflush(stdout);
  }

  /// Pairs of NICs on which rules run: on two hosts next to each other in the list, and at both ends of it.
  std::vector<testbed::RankPath> rule_paths() const {
    std::vector<const certify::Nic*> first;
    std::set<std::string> hosts;
    for (const certify::Nic& nic : certification_.nics) {
      if (hosts.insert(nic.host).second) first.push_back(&nic);
    }
    std::vector<testbed::RankPath> paths;
    if (first.size() >= 2) paths.push_back({first[0]->name, first[1]->name});
    if (first.size() >= 3) paths.push_back({first.front()->name, first.back()->name});
    return paths;
  }

  /// Hosts for rules with more than two ranks.
  testbed::RankGroup group() const {
    constexpr std::size_t kMostHosts = 4;
    testbed::RankGroup group;
    std::vector<std::string> nics;
    for (const certify::Nic& nic : certification_.nics) {
      if (nic.rail != 0 || nics.size() >= kMostHosts) continue;
      group.ranks.push_back(nic.host);
      nics.push_back(nic.name);
    }
    for (std::size_t i = 0; i < nics.size(); ++i) {
      group.interfaces.emplace_back(nics.size(), nics[i]);
      group.interfaces.back()[i] = "";
    }
    return group;
  }

  void judge(report::Document& document, certify::Hub&, control::Session& session, const control::Limits&) {
    if (rules_.empty()) return;
    report::Console console(stdout, report::Style::of(stdout));
    for (const testbed::RankPath& path : rule_paths()) {
      if (stopped()) return;
      report::Run run;
      run.plugin_path = plugin_.load;
      run.plugin_name = certification_.plugin_name;
      run.apis = plugin_.apis;
      run.api = api_;
      run.seed = seed_;
      run.environment = nccl_variables();
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
      settings.rerun = fmt::format("{} run --plugin {} --api v{} --seed {}", shell_word(program_as_typed()),
                                   shell_word(plugin_.load), api_, seed_);
      settings.stop = &stop_on_signals();
      settings.on_result = [&](const report::RuleResult& result) { console.rule(result); };
      const auto start = std::chrono::steady_clock::now();
      run.rules = conformance::run_rules(&session, conformance::catalogue(), settings);
      run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      certification_.seconds["rules"] += run.seconds;
      console.end(run);
      document.runs.push_back(std::move(run));
    }
  }

  void measure(certify::Hub& hub, control::Session& session) {
    certify::CertifySettings settings;
    settings.pair = {.seconds = arguments_.pair_seconds, .seed = seed_};
    settings.load.seconds = arguments_.load_seconds;
    settings.loads = !arguments_.skips("loads");
    settings.subject = subject();
    settings.call_seconds *= arguments_.timeout_scale;
    settings.host_seconds = arguments_.host_seconds;
    settings.rounds = static_cast<std::size_t>(arguments_.rounds);
    settings.width = static_cast<std::size_t>(arguments_.width);
    settings.stop = stopped;
    settings.progress = [](const std::string& line) {
      fmt::print("{}\n", line);
      std::fflush(stdout);
    };
    certify::measure(certification_, hub, session, settings);
  }

  void print_result() {
    for (const certify::Suspect& it : certification_.suspects) {
      fmt::print("{:<7} {}  {}\n", it.kind, it.subject, report::printable(it.why));
    }
    const auto broken = std::count_if(certification_.pairs.begin(), certification_.pairs.end(),
                                      [](const certify::PairRecord& it) { return !it.outcome.broken.empty(); });
    fmt::print("{}, {} broken; {}, {} bytes of control traffic\n", counted(certification_.pairs.size(), "pair"), broken,
               counted(certification_.counters.messages, "message"), certification_.counters.bytes);
  }

  void write(const report::Document& document) {
    certify::Manifest manifest;
    manifest.version = PLUGFEST_VERSION;
    manifest.commit = PLUGFEST_COMMIT;
    manifest.command = command_line();
    manifest.written =
        fmt::format("{:%FT%TZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
    manifest.plugin_path = plugin_.load;
    manifest.plugin_sha256 = certify::sha256_of_file(plugin_.library);
    manifest.tool_sha256 = certify::sha256_of_file("/proc/self/exe");
    for (const conformance::Rule* rule : rules_) manifest.rules.emplace_back(rule->id);
    manifest.runs = rules_.empty() ? 0 : rule_paths().size();
    manifest.waivers = known_.about(plugin_.load, certification_.plugin_name).all();
    std::vector<certify::ArchiveFile> files = {
        {"certification.json", report::json_text(certify::to_json(certification_))},
        {"results.json", report::to_json(document)},
        {"report.html", report::to_html(document)}};
    for (const certify::HostRecord& host : certification_.hosts) {
      if (host.joined) files.push_back({fmt::format("hosts/{}.json", host.name), host.facts});
    }
    const std::string archive = certify::make_archive(manifest, files);
    output_.write(archive);
    fmt::print("{}: SHA-256 {}\n", arguments_.output, certify::sha256_hex(archive));
  }

  static std::vector<std::string> command_line() {
    std::vector<std::string> words;
    std::string text = nlohmann::json().dump();
    std::FILE* const file = std::fopen("/proc/self/cmdline", "re");
    text.clear();
    for (int byte = 0; file != nullptr && (byte = std::fgetc(file)) != EOF;) {
      if (byte != 0) {
        text += static_cast<char>(byte);
        continue;
      }
      words.push_back(std::exchange(text, {}));
    }
    if (file != nullptr) std::fclose(file);
    return words;
  }

  Arguments& arguments_;
  const std::optional<JobTask> task_;
  Detached detached_;
  const Plugin plugin_;
  const int api_;
  std::vector<const conformance::Rule*> rules_;
  const std::uint64_t seed_;
  report::OutputFile output_;
  std::vector<std::string> expected_;
  report::KnownFindings known_;
  std::string address_;
  certify::Certification certification_;
};

int certify_cluster(Arguments& arguments) {
  if (arguments.is_agent) return serve_as_agent(arguments);
  for (const std::string& phase : arguments.skip) {
    if (phase != "rules" && phase != "loads") {
      throw std::runtime_error(fmt::format("--skip \"{}\": there are rules and loads", phase));
    }
  }
  const std::optional<JobTask> task = JobTask::of_environment();
  if (!task && arguments.hosts.empty()) {
    throw std::runtime_error(
        "certify: name the hosts with --hosts FILE, or start plugfest certify with mpirun or srun");
  }
  if (!task) return Controller(arguments, task).run();
  if (arguments.meeting.empty()) arguments.meeting = ".plugfest-certify-" + task->job;
  if (!task->first_on_host) return 0;
  if (task->number == 0) return Controller(arguments, task).run();
  Detached detached;
  if (task->ends_with_host) {
    if (const std::optional<int> exit_code = detached.start("")) return *exit_code;
  }
  try {
    serve_as_agent(arguments, MeetingFile::wait_for(arguments.meeting, arguments.join_seconds));
  } catch (const std::exception& error) {
    fmt::print(stderr, "plugfest: {}: {}\n", own_host_name(), error.what());
  }
  // An exit code other than 0 would make mpirun and srun end the other tasks.
  return 0;
}

}  // namespace

void add_certify(Command program) {
  Command command = program.add_subcommand(
      "certify", "Judge and measure a plugin on the hosts of a real cluster",
      "Start it on one host with --hosts FILE, or with mpirun or srun, one task per host. The plugin is at the same "
      "path on all hosts. docs/certify.md explains the "
      "phases and the archive. Exit code: 0 if all is well, 1 if a rule, pair or host is bad, 2 if something could not "
      "be judged or a host is lost.");
  auto arguments = std::make_shared<Arguments>();
  arguments->RuleOptions::add_options(command, "10 s");
  command.add_option("--api", arguments->api, "Version of the interface, such as v8; default: the newest")
      .type_name("VERSION");
  command.add_option("--hosts", arguments->hosts, "The names of all hosts, one a line").type_name("FILE");
  command
      .add_option("--launch-agent", arguments->launch_agent,
                  "What runs a command on a host; it is followed by the host and the command; default: ssh")
      .type_name("COMMAND");
  command
      .add_option("--remote-program", arguments->remote_program,
                  "The path of plugfest on the hosts; default: that of this program")
      .type_name("PATH");
  command
      .add_option("--interface", arguments->interface,
                  "The network interface of this host on which agents reach the controller; default: the only one")
      .type_name("NAME");
  command
      .add_option("--meeting", arguments->meeting,
                  "With mpirun and srun: a file that all hosts share, through which agents find the controller")
      .type_name("FILE");
  command.add_option("-o,--output", arguments->output, "The archive to write; default: certification.tar")
      .type_name("FILE");
  command.add_option("--skip", arguments->skip, "Leave out rules or loads; repeatable")
      .type_name("PHASE")
      .delimiter(',');
  command.add_option("--join-seconds", arguments->join_seconds, "How long to wait for hosts; default: 60")
      .type_name("X");
  command
      .add_option("--host-seconds", arguments->host_seconds,
                  "A host that has not answered for so long is lost; default: 20")
      .type_name("X");
  command
      .add_option("--pair-seconds", arguments->pair_seconds,
                  "How long to measure each pair, in each direction; default: 0.2")
      .type_name("X");
  command.add_option("--load-seconds", arguments->load_seconds, "How long each load takes; default: 5").type_name("X");
  check_count(command.add_option("--width", arguments->width,
                                 "Measure N pairs at the same time; default: all of a round, each NIC once"),
              1000000)
      .type_name("N");
  check_count(command.add_option("--rounds", arguments->rounds,
                                 "Measure each NIC with N others only; default: with all others of its rail"),
              1000000)
      .type_name("N");
  check_count(command.add_option("--fan-out", arguments->fan_out,
                                 "At most N agents connect to the controller, and carry the messages of the others; "
                                 "default: 32"),
              1000000)
      .type_name("N");
  command.add_flag("--agent", arguments->is_agent, "Serve a controller, whose address and token are on standard input");
  command.add_option("--name", arguments->name, "With --agent: the name of this host; default: its host name")
      .type_name("HOST");
  command.set_body([arguments] { return certify_cluster(*arguments); });
}

}  // namespace plugfest::cli
