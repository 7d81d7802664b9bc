// plugfest fuzz: runs random schedules on a plugin and compares the results with a model.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <random>
#include <stdexcept>

#include "conformance/model/player.h"
#include "conformance/model/schedule.h"
#include "fabric/system/clock.h"
#include "fabric/system/text.h"
#include "harness/abi/one_sided.h"
#include "harness/cli/command.h"
#include "harness/cli/fuzz_report.h"
#include "harness/cli/options.h"
#include "harness/cli/stop.h"
#include "harness/cli/subject.h"
#include "harness/control/call.h"

namespace plugfest::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxSeconds = 7 * 24 * 3600;
constexpr std::size_t kRanks = 3;
constexpr const char* kDefaultFile = "plugfest-finding.yaml";

struct Arguments {
  std::string plugin;
  std::string api;
  std::string interface;
  bed::RunOptions bed{.topology = "star:3"};
  int seconds = 60;
  int shrink_seconds = 60;
  std::optional<std::uint64_t> seed;
  std::string replay;
  std::string save;
  std::string json;
};

// The ranks of schedules: the first interfaces of hosts that reach each other.
std::vector<std::string> choose_ranks(const bed::TestBed& bed) {
  std::vector<std::string> ranks;
  std::optional<topology::Subnet> subnet;
  for (const faults::Interface& interface : faults::host_interfaces(bed.graph())) {
    if (ranks.size() == kRanks) return ranks;
    const topology::Subnet its = faults::subnet_of(bed.graph(), interface);
    if (subnet && its.text() != subnet->text()) return {bed.paths().front().near, bed.paths().front().far};
    subnet = its;
    ranks.push_back(interface.node + "." + interface.name);
  }
  return ranks;
}

// Errors: std::runtime_error with a suggestion, unless the topology has all ranks of the schedule,
// and its bugs are known.
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

// The file for a finding. Null if the user named none and the current folder cannot be written.
std::unique_ptr<report::OutputFile> open_finding_file(const Arguments& arguments) {
  if (!arguments.save.empty() || !arguments.replay.empty()) return report::open_output(arguments.save);
  try {
    return report::open_output(kDefaultFile);
  } catch (const std::runtime_error&) {
    return nullptr;
  }
}

// The command that runs `file` again; if `file` is empty, the whole run.
std::string again(const std::string& file, std::uint64_t seed) {
  Again command;
  command.without({"--save"});
  if (file.empty()) return command.with("--seed", fmt::to_string(seed)).text();
  return command.without({"--seconds", "--seed", "--topology", "--shrink-seconds", "--interface"})
      .with("--replay", file)
      .text();
}

class Fuzzing {
 public:
  Fuzzing(const Arguments& arguments, bed::RunBed& run, const Plugin& plugin, const PluginVersion& version)
      : arguments_(arguments),
        bed_(run.build(plugin.library.empty())),
        subject_(bed_.subject(plugin.load, version.api, version.interface)),
        limits_{.call_seconds = run.call_seconds(), .stop_fd = stop_fd()},
        session_(bed_.launcher(), subject_, limits_) {}

  // Runs random schedules until one shows a deviation or the time is over. Returns that schedule.
  std::optional<model::Schedule> run(FuzzReport& report) {
    const Stopwatch watch;
    const auto end = Clock::now() + std::chrono::seconds(arguments_.seconds);
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
      // The report says that the run was interrupted.
    }
    report.seconds = watch.seconds();
    return broken;
  }

  // Runs one schedule. Returns whether it shows a deviation, which is then the finding of `report`.
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

  // Shrinks the finding of `report`.
  void examine(FuzzReport& report) {
    control::Limits quick = limits_;
    // Most schedules that the search tries end in a hang.
    constexpr double kShareOfSearch = 0.2;
    quick.call_seconds *= kShareOfSearch;
    control::Session session(bed_.launcher(), subject_, quick);
    model::Examiner examiner({session, bed_.injector()}, {session_, bed_.injector()}, stop_on_signals(),
                             std::chrono::seconds(arguments_.shrink_seconds));
    const model::Finding first = *report.finding;
    report.finding = examiner.examine(first.schedule, first.deviation, report.messages);
  }

 private:
  model::Shape make_shape() {
    model::Shape shape{.topology = bed_.graph().name,
                       .ranks = choose_ranks(bed_),
                       .max_receives = ~0u,
                       .faults = bed_.injector() != nullptr};
    control::Lease lease = session_.lease();
    if (subject_.interface != plugin::InterfaceKind::kNet) {
      shape.interface = plugin::interface_of(subject_.interface).name;
      shape.gets = lease.rank(shape.ranks.front()).has_function("iget");
      shape.contexts = abi::has_gets_and_contexts(subject_.api);
    } else {
      for (const std::string& rank : shape.ranks) {
        control::Endpoint endpoint = lease.endpoint(rank);
        shape.max_receives = std::min(shape.max_receives, model::max_receives_of(endpoint));
      }
    }
    lease.release(true);
    return shape;
  }

  const Arguments& arguments_;
  bed::TestBed& bed_;
  const control::Subject subject_;
  const control::Limits limits_;
  control::Session session_;
};

// NVIDIA's own transport with the interface of the schedule. RMA has the same operations as GIN.
std::string oracle_of(const model::Schedule& schedule) { return schedule.interface.empty() ? "nccl:IB" : "nccl:GIN"; }

// Runs the schedule on the oracle, whose verdict distinguishes a bug of the plugin from one of plugfest.
OracleRun ask_oracle(const Arguments& arguments, bed::RunBed& bed, const std::string& subject,
                     const model::Schedule& schedule) {
  OracleRun run = {.name = oracle_of(schedule)};
  try {
    if (subject == run.name) throw std::runtime_error("it is the plugin under test");
    const Plugin oracle = find_plugin(run.name, false);
    FuzzReport report;
    if (!Fuzzing(arguments, bed, oracle, choose_versions(oracle, "", "").front()).play(schedule, report)) {
      run.result = OracleRun::Result::kPassed;
    } else {
      run.result = OracleRun::Result::kFailed;
      run.text = report.finding->deviation.what;
    }
  } catch (const std::exception& error) {
    run.text = error.what();
  }
  return run;
}

int fuzz(Arguments& arguments) {
  require_one_api(arguments.api);
  std::optional<model::Schedule> replayed;
  if (!arguments.replay.empty()) replayed = model::read_schedule(arguments.replay);
  if (replayed) arguments.interface = replayed->interface;
  if (arguments.interface.empty()) arguments.interface = "net";
  const bool is_net = arguments.interface == "net";
  const Plugin plugin = find_plugin(arguments.plugin, is_net);
  const PluginVersion version = choose_versions(plugin, arguments.interface, arguments.api).front();
  if (!is_net && plugin::api_layout(version.interface, version.api).find("iput") == nullptr)
    throw std::runtime_error(fmt::format("--api: {} v{} has no puts, which the GPU starts: name an older version",
                                         arguments.interface, version.api));
  if (replayed) arguments.bed.topology = replayed->topology;
  bed::RunBed bed(arguments.bed);
  if (replayed) check_names(arguments, *replayed, bed.graph());
  FuzzReport report{.plugin = plugin.load,
                    .interface = arguments.interface,
                    .api = version.api,
                    .topology = bed.graph().name,
                    .seed = chosen_seed(arguments.seed)};
  const std::unique_ptr<report::OutputFile> file = open_finding_file(arguments);
  const auto json = report::open_output(arguments.json);
  if (const std::optional<int> exit_code = bed.enter()) return explain_end(*exit_code);
  stop_on_signals();

  std::FILE* const stream = report::is_standard_output(arguments.json) ? stderr : stdout;
  {
    Fuzzing fuzzing(arguments, bed, plugin, version);
    if (replayed) {
      report.ranks = replayed->ranks;
      report.seed = replayed->seed;
      try {
        fuzzing.play(*replayed, report);
      } catch (const control::Interrupted&) {
        // The report says that the run was interrupted.
      }
    } else {
      fmt::print(stream, "fuzz {}{} v{}: {} s, seed {}\n", report.plugin, is_net ? "" : " " + report.interface,
                 report.api, arguments.seconds, report.seed);
      std::fflush(stream);
      fuzzing.run(report);
    }
    fmt::print(stream, "{} in {}, {} MB{}\n", counted(report.messages, report.noun()),
               counted(report.schedules, "schedule"), report.bytes / 1'000'000,
               replayed ? "" : fmt::format(", {:.1f} s", report.seconds));
    if (report.finding) {
      print_deviation(stream, report.finding->schedule, report.finding->deviation);
      if (!replayed) fuzzing.examine(report);
    }
  }
  if (report.finding) {
    const model::Finding& finding = *report.finding;
    report.again = again(arguments.replay, report.seed);
    if (finding.failures > 0 && file != nullptr) {
      report.file = arguments.save.empty() ? kDefaultFile : arguments.save;
      report.again = again(report.file, report.seed);
      file->write(model::file_text(finding.schedule, {"A finding of plugfest fuzz: " + finding.deviation.what,
                                                      "Plugin: " + report.plugin, "Run it again: " + report.again}));
    }
    report.oracle = stop_signal() != 0 ? OracleRun{.name = oracle_of(finding.schedule), .text = "interrupted"}
                                       : ask_oracle(arguments, bed, report.plugin, finding.schedule);
    print_finding(stream, report);
  }
  report.stop_signal = stop_signal();
  if (json) json->write(json_of(report));
  if (report.finding) return 1;
  return report.stop_signal == 0 ? 0 : 128 + report.stop_signal;
}

}  // namespace

void add_fuzz(Command program) {
  Command command =
      program.add_subcommand("fuzz", "Run random schedules on a plugin and compare its results with a model");
  auto arguments = std::make_shared<Arguments>();
  add_plugin_option(command, arguments->plugin);
  command.add_option("--api VERSION", arguments->api, "Version of the interface, such as v8; default: the newest");
  command.add_option("--replay FILE", arguments->replay, "Run the schedule in FILE once");
  command.add_option("--seconds N", arguments->seconds, "Duration; default: 60",
                     {.at_most = kMaxSeconds, .excludes = "--replay"});
  command.add_option("--seed N", arguments->seed, "Seed of the schedules; default: a random one",
                     {.excludes = "--replay"});
  command.add_option("--interface NAME", arguments->interface,
                     "The interface: net, or gin or rma, whose schedules are puts, gets and signals; default: net",
                     {.one_of = {"net", "gin", "rma"}, .excludes = "--replay"});
  command.add_option("--save FILE", arguments->save,
                     fmt::format("Write the schedule of a finding to FILE; default: {}", kDefaultFile));
  command.add_option("--shrink-seconds N", arguments->shrink_seconds,
                     "Time limit of the search for a smaller schedule after a deviation; default: 60",
                     {.at_most = kMaxSeconds, .excludes = "--replay"});
  command.add_option("--json FILE", arguments->json, "Also write the result to FILE as JSON", {.again = false});
  add_topology_option(command, arguments->bed.topology, "star:3", {.excludes = "--replay"});
  add_timeout_option(command, arguments->bed.timeout_scale, "calls, 10 s");
  add_nic_options(command, arguments->bed);
  command.set_body([arguments] { return fuzz(*arguments); });
}

}  // namespace plugfest::cli
