// plugfest certify: its options, and the choice between controller and agent. plugfest verify: checks an archive.
#include <fmt/format.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "fabric/netns/sandbox.h"
#include "fabric/system/file.h"
#include "harness/cli/certify/controller.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/cli/subject.h"
#include "harness/cluster/agents/agent.h"
#include "harness/cluster/agents/token.h"
#include "harness/cluster/archive.h"
#include "harness/report/text.h"
#include "harness/traffic/soak.h"
#include "version.h"

namespace plugfest::cli {
namespace {

using Arguments = CertifyArguments;

// A day.
constexpr double kMaxSeconds = 24 * 3600;

// --agent: the controller's command starts it on each host.
int serve_as_agent(const Arguments& arguments, const std::optional<cluster::Meeting>& known = std::nullopt) {
  cluster::Meeting meeting;
  if (known) {
    meeting = *known;
  } else {
    char line[256];
    if (std::fgets(line, sizeof(line), stdin) == nullptr) {
      throw std::runtime_error(
          "--agent: expected the controller's address and token on standard input; plugfest certify --hosts starts "
          "agents itself");
    }
    meeting = cluster::Meeting::parse(line);
  }
  const std::string name = arguments.name.empty() ? own_host_name() : arguments.name;
  if (const std::optional<int> exit_code = netns::contain_processes()) return *exit_code;
  std::signal(SIGPIPE, SIG_IGN);  // a rank may end while the agent writes to a pipe of it
  cluster::run_agent(meeting, name, PLUGFEST_VERSION);
  return 0;
}

int certify_cluster(Arguments& arguments) {
  if (arguments.is_agent) return serve_as_agent(arguments);
  require_one_api(arguments.api);
  for (const std::string& phase : arguments.skip)
    if (phase != "rules" && phase != "loads")
      throw std::runtime_error(fmt::format("--skip \"{}\": expected rules or loads", phase));
  const std::optional<JobTask> task = JobTask::of_environment();
  if (!task && arguments.hosts.empty()) {
    throw std::runtime_error(
        "certify: name the hosts with --hosts FILE, or start plugfest certify with mpirun or srun");
  }
  if (!task) return certify_hosts(arguments, task);
  if (arguments.meeting.empty()) arguments.meeting = ".plugfest-certify-" + task->job;
  if (!task->first_on_host) return 0;
  if (task->number == 0) return certify_hosts(arguments, task);
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

int verify_archive(const std::string& path) {
  constexpr std::uintmax_t kMaxBytes = std::uintmax_t{1} << 30;
  std::error_code error;
  if (const std::uintmax_t size = std::filesystem::file_size(path, error); !error && size > kMaxBytes)
    throw std::runtime_error(fmt::format("{}: {} bytes: the archive of a certification has at most 1 GiB", path, size));
  const std::string archive = read_file(path);
  const cluster::Verification result = cluster::verify(archive, report::today());
  for (const std::string& line : result.statements) fmt::print("{}\n", report::printable(line));
  for (const std::string& line : result.problems) fmt::print("PROBLEM {}\n", report::printable(line));
  fmt::print("{}: {}, SHA-256 {}\n", path,
             !result.problems.empty() ? "not intact or not complete"
             : result.certified == 0  ? "intact; the cluster passed"
             : result.certified == 1  ? "intact; the cluster did not pass"
                                      : "intact; the certification is not complete",
             cluster::sha256_hex(archive));
  return result.exit_code();
}

}  // namespace

void add_certify(Command program) {
  Command command = program.add_subcommand(
      "certify", "Test and measure a plugin on the hosts of a real cluster",
      "Start it on one host with --hosts FILE, or with mpirun or srun, one task per host. The plugin is at the same "
      "path on all hosts. docs/certify.md explains the phases and the archive. Exit code: 0 if everything passed; "
      "1 if a rule, pair, load or soak failed or the hosts differ; 2 if a host was lost, never joined or has no "
      "device, a rule or pair could not be tested, a phase was not reached, or the command line is wrong.");
  auto arguments = std::make_shared<Arguments>();
  arguments->RuleOptions::add_options(command, "10 s");
  command.add_option("--api VERSION", arguments->api, "Version of the interface, such as v8; default: the newest");
  command.add_option("--hosts FILE", arguments->hosts, "File with the names of all hosts, one per line");
  command.add_option(
      "--launch-agent COMMAND", arguments->launch_agent,
      "Command that starts an agent on a host: plugfest appends the host and the agent's command; default: ssh");
  command.add_option("--remote-program PATH", arguments->remote_program,
                     "The path of plugfest on the hosts; default: the path of this program");
  command.add_option("--interface NAME", arguments->interface,
                     "Network interface of this host over which agents reach the controller; default: the only one");
  command.add_option("--meeting FILE", arguments->meeting,
                     "With mpirun and srun: file on all hosts in which agents find the address of the controller");
  command.add_option("-o,--output FILE", arguments->output, "The archive to write; default: certification.tar");
  command.add_option("--skip PHASE", arguments->skip, "What to skip: rules or loads; repeatable", {.delimiter = ','});
  command.add_option("--join-seconds X", arguments->join_seconds, "Time limit for hosts to join; default: 60",
                     {.at_most = kMaxSeconds});
  command.add_option("--host-seconds X", arguments->host_seconds,
                     "Time without an answer after which a host is lost; default: 20", {.at_most = kMaxSeconds});
  command.add_option("--pair-seconds X", arguments->pair_seconds,
                     "Duration of the measurement of each pair in each direction; default: 0.2",
                     {.at_most = kMaxSeconds});
  command.add_option("--load-seconds X", arguments->load_seconds, "Duration of each load; default: 5",
                     {.at_most = kMaxSeconds});
  command.add_option(
      "--soak MINUTES", arguments->soak_minutes,
      "After the loads, repeat messages, connections and registrations on a pair of each NIC, and find what "
      "grows; default: no soak",
      {.at_most = traffic::kMaxSoakMinutes});
  command.add_option("--width N", arguments->width,
                     "Measure at most N pairs at the same time; default: all pairs of a round", {.at_most = 1000000});
  command.add_option("--rounds N", arguments->rounds,
                     "Measure each NIC with N others only; default: with all others of its rail", {.at_most = 1000000});
  command.add_flag("--agent", arguments->is_agent, "Serve a controller, whose address and token are on standard input");
  command.add_option("--name HOST", arguments->name, "With --agent: the name of this host; default: its host name");
  command.set_body([arguments] { return certify_cluster(*arguments); });
}

void add_verify(Command program) {
  Command command = program.add_subcommand(
      "verify", "Check the archive of a certification",
      "Exit code: the certification's, 0, 1 or 2; 2 if the archive was changed or is incomplete. The checksums "
      "inside a changed archive may have been computed again: compare its SHA-256 with the one that certify printed.");
  auto path = std::make_shared<std::string>();
  command.add_option("FILE", *path, "The archive that certify has written", {.required = true});
  command.set_body([path] { return verify_archive(*path); });
}

}  // namespace plugfest::cli
