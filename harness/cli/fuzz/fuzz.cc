// plugfest fuzz: runs random schedules on a plugin and compares with a model.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>

#include "conformance/model/generator.h"
#include "conformance/model/player.h"
#include "fabric/system/text.h"
#include "harness/cli/command.h"
#include "harness/cli/options/fabric_selection.h"
#include "harness/cli/options/nic_option.h"
#include "harness/cli/options/numbers.h"
#include "harness/cli/options/subject.h"
#include "harness/cli/stop.h"
#include "harness/control/deviation.h"
#include "harness/faults/fault_target.h"
#include "harness/report/output_file.h"

namespace plugfest::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostSeconds = 7 * 24 * 3600;
constexpr std::size_t kRanks = 3;

struct Arguments {
  std::string plugin;
  std::string api;
  std::string topology = "star:3";
  NicOption nic;
  int seconds = 60;
  std::optional<std::uint64_t> seed;
  std::string replay;
  double timeout_scale = 1;
};

/// The ranks of schedules: the first interfaces of hosts that reach each other.
std::vector<std::string> choose_ranks(const topology::Graph& graph, const testbed::TestBed& bed) {
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

/// The runs of one command on one test bed.
class Fuzzing {
 public:
  Fuzzing(const Arguments& arguments, testbed::TestBed& bed, const Plugin& plugin, int api, double call_seconds)
      : arguments_(arguments),
        plugin_(plugin),
        session_(bed.launcher(), bed.subject(plugin.load, api), {.call_seconds = call_seconds, .stop_fd = stop_fd()}),
        seed_(arguments.seed ? *arguments.seed : std::random_device{}()) {}

  /// Runs random schedules. Returns the exit code.
  int run(const model::Shape& shape) {
    fmt::print("fuzz {}: {} for {} s, seed {}\n", plugin_.load, counted(shape.ranks.size(), "rank"), arguments_.seconds,
               seed_);
    std::fflush(stdout);
    const auto start = Clock::now();
    const auto end = start + std::chrono::seconds(arguments_.seconds);
    std::mt19937_64 seeds(seed_);
    std::uint64_t schedules = 0, messages = 0, bytes = 0;
    std::optional<model::Deviation> deviation;
    model::Schedule schedule;
    try {
      while (!deviation && stop_signal() == 0 && Clock::now() < end) {
        schedule = model::random_schedule(shape, seeds());
        model::Played played = model::play(session_, schedule, stop_on_signals());
        ++schedules;
        messages += played.messages;
        bytes += played.bytes;
        deviation = std::move(played.deviation);
      }
    } catch (const control::Interrupted&) {
      // The summary says so.
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    fmt::print("{} in {}, {} MB, {:.1f} s\n", counted(messages, "message"), counted(schedules, "schedule"),
               bytes / 1'000'000, seconds);
    if (deviation) {
      report(schedule, *deviation);
      return 1;
    }
    return stop_signal() == 0 ? 0 : 128 + stop_signal();
  }

  /// Runs one schedule. Returns the exit code.
  int replay(const model::Schedule& schedule) {
    const model::Played played = model::play(session_, schedule, stop_on_signals());
    fmt::print("{}\n", counted(played.messages, "message"));
    if (!played.deviation) return 0;
    report(schedule, *played.deviation);
    return 1;
  }

  control::Session& session() { return session_; }

 private:
  void report(const model::Schedule& schedule, const model::Deviation& deviation) {
    fmt::print("FAIL  {}\n", deviation.what);
    if (deviation.step && *deviation.step < schedule.steps.size()) {
      fmt::print("  {}\n", model::step_text(schedule, schedule.steps[*deviation.step]));
    }
  }

  const Arguments& arguments_;
  const Plugin& plugin_;
  control::Session session_;
  std::uint64_t seed_;
};

model::Shape shape_for(control::Session& session, const topology::Graph& graph, testbed::TestBed& bed) {
  model::Shape shape{.topology = graph.name, .ranks = choose_ranks(graph, bed), .max_receives = ~0u};
  control::Lease lease = session.lease();
  for (const std::string& rank : shape.ranks) {
    control::Endpoint endpoint = lease.endpoint(rank);
    shape.max_receives = std::min(shape.max_receives, model::max_receives_of(endpoint));
  }
  lease.release(true);
  return shape;
}

/// Errors: std::runtime_error with a suggestion, unless the topology has all ranks of the schedule.
void check_ranks(const Arguments& arguments, const model::Schedule& schedule, const topology::Graph& graph) {
  for (const std::string& rank : schedule.ranks) {
    try {
      faults::find_interface(graph, rank);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("schedule {}: ranks: {}", arguments.replay, error.what()));
    }
  }
}

int fuzz(Arguments& arguments) {
  std::optional<model::Schedule> replayed;
  if (!arguments.replay.empty()) replayed = model::read_schedule(arguments.replay);
  const Plugin plugin = find_plugin(arguments.plugin);
  const std::unique_ptr<testbed::NicKind> nic = arguments.nic.make();
  FabricSelection fabric = FabricSelection::built(replayed ? replayed->topology : arguments.topology);
  if (replayed) check_ranks(arguments, *replayed, fabric.graph());
  nic->check_topology(fabric.graph());
  const int api = choose_apis(plugin, arguments.api).front();
  if (const std::optional<int> exit_code = fabric.enter(*nic)) return explain_end(*exit_code);
  stop_on_signals();
  testbed::TestBed bed = fabric.build(*nic, plugin.library.empty());
  const double call_seconds = control::Limits{}.call_seconds * arguments.timeout_scale * nic->timeout_scale();
  Fuzzing fuzzing(arguments, bed, plugin, api, call_seconds);
  if (replayed) return fuzzing.replay(*replayed);
  return fuzzing.run(shape_for(fuzzing.session(), fabric.graph(), bed));
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
  command.add_option("-t,--topology", arguments->topology, "The topology; default: star:3").type_name("TOPOLOGY");
  check_timeout_scale(
      command.add_option("--timeout-scale", arguments->timeout_scale, "Multiply the time limit of calls, 10 s"))
      .type_name("X");
  arguments->nic.add_options(command);
  command.set_body([arguments] { return fuzz(*arguments); });
}

}  // namespace plugfest::cli
