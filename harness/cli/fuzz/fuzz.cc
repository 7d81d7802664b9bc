// plugfest fuzz: runs random schedules on a plugin and compares with a model.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>

#include "conformance/model/player.h"
#include "conformance/model/schedule.h"
#include "fabric/system/text.h"
#include "harness/cli/command.h"
#include "harness/cli/fuzz/fuzz_report.h"
#include "harness/cli/options/nic_option.h"
#include "harness/cli/options/numbers.h"
#include "harness/cli/options/subject.h"
#include "harness/cli/stop.h"
#include "harness/control/call.h"
#include "harness/faults/script.h"
#include "harness/report/output_file.h"

namespace plugfest::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostSeconds = 7 * 24 * 3600;
constexpr std::size_t kRanks = 3;
constexpr const char* kOracle = "nccl:IB";
constexpr const char* kDefaultFile = "plugfest-finding.yaml";

struct Arguments {
  std::string plugin;
  std::string api;
  std::string topology = "star:3";
  NicOption nic;
  int seconds = 60;
  int shrink_seconds = 60;
  std::optional<std::uint64_t> seed;
  std::string replay;
  std::string save;
  std::string json;
  double timeout_scale = 1;
};

/// The ranks of schedules: the first interfaces of hosts that reach each other.
std::vector<std::string> choose_ranks(const topology::Graph& graph, const bed::TestBed& bed) {
  std::vector<std::string> ranks;
  std::optional<topology::Subnet> subnet;
  for (const faults::Interface& interface : faults::host_interfaces(graph)) {
    if (ranks.size() == kRanks) return ranks;
    const topology::Subnet its = faults::subnet_of(graph, interface);
    if (subnet && its.text() != subnet->text()) return {bed.paths().front().near, bed.paths().front().far};
    subnet = its;
    ranks.push_back(interface.node + "." + interface.name);
  }
  return ranks;
}

/// Errors: std::runtime_error with a suggestion, unless the topology has all ranks of the schedule,
/// and its faults are known.
void check_names(const Arguments& arguments, const model::Schedule& schedule, const topology::Graph& graph) {
  for (const std::string& rank : schedule.ranks) {
    try {
      faults::find_interface(graph, rank);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("schedule {}: ranks: {}", arguments.replay, error.what()));
    }
  }
  try {
    model::packet_faults(schedule, graph);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("schedule {}: {}", arguments.replay, error.what()));
  }
}

/// The file for a finding. Null if the user named none and the current folder cannot be written.
std::unique_ptr<report::OutputFile> open_finding_file(const Arguments& arguments) {
  if (!arguments.save.empty()) return std::make_unique<report::OutputFile>(arguments.save);
  if (!arguments.replay.empty()) return nullptr;
  try {
    return std::make_unique<report::OutputFile>(kDefaultFile);
  } catch (const std::runtime_error&) {
    return nullptr;
  }
}

/// The command that runs a file again.
std::string again(const Arguments& arguments, const std::string& file) {
  std::string command =
      nccl_variables_as_typed() + shell_word(program_as_typed()) + " fuzz --replay " + shell_word(file);
  if (!arguments.plugin.empty()) command += " --plugin " + shell_word(arguments.plugin);
  if (!arguments.api.empty()) command += " --api " + shell_word(arguments.api);
  if (!arguments.nic.is_default()) command += " --nic " + arguments.nic.kind;
  if (arguments.timeout_scale != 1) command += fmt::format(" --timeout-scale {}", arguments.timeout_scale);
  return command;
}

/// The command that repeats the whole run.
std::string again(const Arguments& arguments, std::uint64_t seed) {
  std::string command = fmt::format("{}{} fuzz --seconds {} --seed {}", nccl_variables_as_typed(),
                                    shell_word(program_as_typed()), arguments.seconds, seed);
  if (!arguments.plugin.empty()) command += " --plugin " + shell_word(arguments.plugin);
  if (!arguments.api.empty()) command += " --api " + shell_word(arguments.api);
  if (arguments.topology != Arguments{}.topology) command += " --topology " + shell_word(arguments.topology);
  if (!arguments.nic.is_default()) command += " --nic " + arguments.nic.kind;
  return command;
}

/// A plugin on a test bed.
class Fuzzing {
 public:
  Fuzzing(const Arguments& arguments, bed::NicKind& nic, const topology::Graph& graph, const Plugin& plugin, int api)
      : arguments_(arguments),
        graph_(graph),
        bed_(nic.build(graph, plugin.library.empty())),
        subject_(bed_.subject(plugin.load, api)),
        limits_{.call_seconds = control::Limits{}.call_seconds * arguments.timeout_scale * nic.timeout_scale(),
                .stop_fd = stop_fd()},
        session_(bed_.launcher(), subject_, limits_) {}

  /// Runs random schedules until one shows a deviation or the time is over. Returns that schedule.
  std::optional<model::Schedule> run(FuzzReport& report) {
    const auto start = Clock::now();
    const auto end = start + std::chrono::seconds(arguments_.seconds);
    std::mt19937_64 seeds(report.seed);
    std::optional<model::Schedule> broken;
    try {
      const model::Shape shape = make_shape();
      report.ranks = shape.ranks;
      while (!broken && stop_signal() == 0 && Clock::now() < end) {
        const model::Schedule schedule = model::random_schedule(shape, seeds());
        if (play(schedule, report)) broken = schedule;
      }
    } catch (const control::Interrupted&) {
      // The report says so.
    }
    report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return broken;
  }

  /// Runs one schedule. Returns whether it shows a deviation, which is then the finding of `report`.
  bool play(const model::Schedule& schedule, FuzzReport& report) {
    model::Played played = model::play({session_, bed_.injector()}, schedule, stop_on_signals());
    ++report.schedules;
    report.messages += played.messages;
    report.bytes += played.bytes;
    if (!played.deviation) return false;
    report.finding = model::Finding{.schedule = schedule,
                                    .deviation = std::move(*played.deviation),
                                    .runs = 1,
                                    .failures = 1,
                                    .messages = played.messages};
    report.steps_before = schedule.steps.size();
    return true;
  }

  /// Makes the finding of `report` small.
  void examine(FuzzReport& report) {
    control::Limits quick = limits_;
    quick.call_seconds /= 5;
    control::Session session(bed_.launcher(), subject_, quick);
    model::Examiner examiner({session, bed_.injector()}, {session_, bed_.injector()}, stop_on_signals(),
                             std::chrono::seconds(arguments_.shrink_seconds));
    const model::Finding first = *report.finding;
    report.finding = examiner.examine(first.schedule, first.deviation, report.messages);
  }

 private:
  model::Shape make_shape() {
    model::Shape shape{.topology = graph_.name,
                       .ranks = choose_ranks(graph_, bed_),
                       .max_receives = ~0u,
                       .faults = bed_.injector() != nullptr};
    control::Lease lease = session_.lease();
    for (const std::string& rank : shape.ranks) {
      control::Endpoint endpoint = lease.endpoint(rank);
      shape.max_receives = std::min(shape.max_receives, model::max_receives_of(endpoint));
    }
    lease.release(true);
    return shape;
  }

  const Arguments& arguments_;
  const topology::Graph& graph_;
  bed::TestBed bed_;
  const control::Subject subject_;
  const control::Limits limits_;
  control::Session session_;
};

/// Runs the schedule on NVIDIA's own transport, whose verdict tells a fault of the plugin from one of plugfest.
OracleRun ask_oracle(const Arguments& arguments, bed::NicKind& nic, const topology::Graph& graph,
                     const std::string& subject, const model::Schedule& schedule) {
  if (subject == kOracle) return {.text = "it is the plugin under test"};
  try {
    const Plugin oracle = find_plugin(kOracle);
    FuzzReport report;
    if (!Fuzzing(arguments, nic, graph, oracle, oracle.apis.front()).play(schedule, report)) {
      return {.result = OracleRun::Result::kPassed};
    }
    return {.result = OracleRun::Result::kFailed, .text = report.finding->deviation.what};
  } catch (const std::exception& error) {
    return {.text = error.what()};
  }
}

int fuzz(Arguments& arguments) {
  std::optional<model::Schedule> replayed;
  if (!arguments.replay.empty()) replayed = model::read_schedule(arguments.replay);
  const Plugin plugin = find_plugin(arguments.plugin);
  const std::unique_ptr<bed::NicKind> nic = arguments.nic.make();
  const topology::Graph graph = topology::named(replayed ? replayed->topology : arguments.topology);
  if (replayed) check_names(arguments, *replayed, graph);
  nic->check_topology(graph);
  FuzzReport report{.plugin = plugin.load,
                    .api = choose_apis(plugin, arguments.api).front(),
                    .topology = graph.name,
                    .seed = arguments.seed ? *arguments.seed : std::random_device{}()};
  const std::unique_ptr<report::OutputFile> file = open_finding_file(arguments);
  std::optional<report::OutputFile> json;
  if (!arguments.json.empty()) json.emplace(arguments.json);
  if (const std::optional<int> exit_code = nic->enter()) return explain_end(*exit_code);
  stop_on_signals();

  std::FILE* const stream = report::is_standard_output(arguments.json) ? stderr : stdout;
  {
    Fuzzing fuzzing(arguments, *nic, graph, plugin, report.api);
    if (replayed) {
      report.ranks = replayed->ranks;
      report.seed = replayed->seed;
      try {
        fuzzing.play(*replayed, report);
      } catch (const control::Interrupted&) {
        // The report says so.
      }
    } else {
      fmt::print(stream, "fuzz {} v{}: {} s, seed {}\n", report.plugin, report.api, arguments.seconds, report.seed);
      std::fflush(stream);
      fuzzing.run(report);
    }
    fmt::print(stream, "{} in {}, {} MB{}\n", counted(report.messages, "message"),
               counted(report.schedules, "schedule"), report.bytes / 1'000'000,
               replayed ? "" : fmt::format(", {:.1f} s", report.seconds));
    if (report.finding) {
      print_deviation(stream, report.finding->schedule, report.finding->deviation);
      if (!replayed) fuzzing.examine(report);
    }
  }
  if (report.finding) {
    const model::Finding& finding = *report.finding;
    report.again = replayed ? again(arguments, arguments.replay) : again(arguments, report.seed);
    if (finding.failures > 0 && file != nullptr) {
      report.file = arguments.save.empty() ? kDefaultFile : arguments.save;
      report.again = again(arguments, report.file);
      file->write(model::file_text(finding.schedule, {"A finding of plugfest fuzz: " + finding.deviation.what,
                                                      "Plugin: " + report.plugin, "Run it again: " + report.again}));
    }
    report.oracle = stop_signal() != 0 ? OracleRun{.text = "interrupted"}
                                       : ask_oracle(arguments, *nic, graph, report.plugin, finding.schedule);
    print_finding(stream, report);
  }
  report.stop_signal = stop_signal();
  if (json) json->write(json_of(report));
  if (report.finding) return 1;
  return report.stop_signal == 0 ? 0 : 128 + report.stop_signal;
}

}  // namespace

void add_fuzz(Command program) {
  Command command = program.add_subcommand("fuzz", "Run random schedules on a plugin and compare with a model");
  auto arguments = std::make_shared<Arguments>();
  command.add_option("-p,--plugin", arguments->plugin, "The plugin: a path, a name as in NCCL_NET_PLUGIN, nccl:IB")
      .type_name("PLUGIN");
  command.add_option("--api", arguments->api, "The version of the net interface; default: the newest").type_name("vN");
  check_count(command.add_option("--seconds", arguments->seconds, "How long; default: 60").type_name("N"),
              kMostSeconds);
  check_seed(command.add_option("--seed", arguments->seed, "Seed of the schedules; default: a random one"))
      .type_name("N");
  command.add_option("--replay", arguments->replay, "Run the schedule in FILE once").type_name("FILE");
  command
      .add_option("--save", arguments->save,
                  fmt::format("Write the schedule of a finding to FILE; default: {}", kDefaultFile))
      .type_name("FILE");
  check_count(command
                  .add_option("--shrink-seconds", arguments->shrink_seconds,
                              "How long to look for a smaller schedule after a deviation; default: 60")
                  .type_name("N"),
              kMostSeconds);
  command.add_option("--json", arguments->json, "Also write the result to FILE as JSON").type_name("FILE");
  command.add_option("-t,--topology", arguments->topology, "The topology; default: star:3").type_name("TOPOLOGY");
  check_timeout_scale(
      command.add_option("--timeout-scale", arguments->timeout_scale, "Multiply the time limit of calls, 10 s"))
      .type_name("X");
  arguments->nic.add_options(command);
  command.set_body([arguments] { return fuzz(*arguments); });
}

}  // namespace plugfest::cli
