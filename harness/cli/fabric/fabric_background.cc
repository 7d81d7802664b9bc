// plugfest fabric up, list, down: fabrics that stay.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <memory>

#include "conformance/rules/ground.h"
#include "fabric/live/keeper.h"
#include "fabric/live/live_fabric.h"
#include "harness/cli/fabric/fabric.h"
#include "harness/cli/options/place.h"
#include "harness/cli/options/subject.h"

namespace plugfest::cli {
namespace {

struct Arguments {
  std::string name;
  std::string topology;
  bool out_of_band = false;
  bool all = false;
};

std::string size_of(const topology::Graph& graph) {
  return fmt::format("{} hosts, {} switches, {} links", graph.hosts.size(), graph.switches.size(), graph.links.size());
}

/// What `fabric up WORD` means: a name for the topology that is asked for, or a topology that is its own name.
void split(const Arguments& arguments, std::string& name, std::string& topology) {
  name = arguments.name;
  topology = arguments.topology;
  if (!topology.empty()) return;
  topology = "triangle";
  if (name.ends_with(".yaml") || name.ends_with(".yml")) {
    topology = name;
    name = name.substr(name.rfind('/') + 1);
    name = name.substr(0, name.rfind('.'));
  } else if (topology::is_named(name.substr(0, name.find(':')))) {
    topology = name;
  }
}

int up(const Arguments& arguments) {
  live::Record record;
  split(arguments, record.name, record.topology);
  live::check_name(record.name);
  record.out_of_band = arguments.out_of_band;
  const topology::Graph graph = topology::named(record.topology);
  const auto start = std::chrono::steady_clock::now();
  const auto stale = live::start_keeper(live::StateFolder(), record, graph,
                                        conformance::Ground::fabric_options(graph, record.out_of_band));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (stale) {
    fmt::print(stderr, "plugfest: an earlier fabric {} is gone: its keeper, process {}, was killed; cleaned up\n",
               stale->name, stale->keeper);
  }
  fmt::print("{}: {}, {}, up in {:.2f} s\n", record.name, graph.name, size_of(graph), seconds);
  const std::string program = shell_word(program_as_typed());
  fmt::print("  {} fabric exec {} {} -- ibv_devinfo\n", program, record.name, graph.hosts.front().name);
  fmt::print("  {} fabric down {}\n", program, record.name);
  return 0;
}

int list() {
  for (const live::Record& record : live_fabrics()) {
    const topology::Graph graph = topology::named(record.specification);
    std::tm since = {};
    localtime_r(&record.since, &since);
    fmt::print("{:<16} {:<16} {}, since {:%F %T}, keeper {}\n", record.name, record.topology, size_of(graph), since,
               record.keeper);
  }
  return 0;
}

int down(const Arguments& arguments) {
  if (arguments.all == !arguments.name.empty())
    throw std::runtime_error("fabric down: expected the name of a fabric, or --all");
  std::vector<live::Record> records;
  if (arguments.all) {
    records = live_fabrics();
  } else {
    records.push_back(*Place::live(arguments.name).record());
  }
  for (const live::Record& record : records) {
    live::take_down(live::StateFolder(), record);
    fmt::print("{}: down\n", record.name);
  }
  return 0;
}

}  // namespace

void add_fabric_background(Command fabric) {
  auto arguments = std::make_shared<Arguments>();

  Command up_command = fabric.add_subcommand("up", "Build a fabric that stays, without root, in the background");
  up_command.add_option("NAME", arguments->name, "What to call it; a topology is its own name: up fat-tree:4")
      .required();
  up_command.add_option("-t,--topology", arguments->topology, "Hosts and links; default: triangle")
      .type_name("NAME|FILE");
  up_command.add_flag("--oob", arguments->out_of_band,
                      "Hosts also get oob0, a network without NICs that everybody reaches");
  up_command.set_body([arguments] { return up(*arguments); });

  Command list_command = fabric.add_subcommand("list", "Print the fabrics that are up");
  list_command.set_body([] { return list(); });

  Command down_command = fabric.add_subcommand("down", "Take a fabric down, and all that runs in it");
  down_command.add_option("NAME", arguments->name, "Which one");
  down_command.add_flag("--all", arguments->all, "All that are up");
  down_command.set_body([arguments] { return down(*arguments); });
}

}  // namespace plugfest::cli
