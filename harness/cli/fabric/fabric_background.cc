// plugfest fabric up, list, down: background fabrics.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <memory>

#include "fabric/live/keeper.h"
#include "fabric/live/live_fabric.h"
#include "harness/cli/fabric/fabric.h"
#include "harness/cli/options/fabric_selection.h"
#include "harness/cli/options/subject.h"
#include "harness/testbed/roce.h"

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

/// Derives name and topology from `fabric up WORD`: WORD is a topology if it names one and --topology is absent.
void interpret(const Arguments& arguments, std::string& name, std::string& topology) {
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
  interpret(arguments, record.name, record.topology);
  live::check_name(record.name);
  record.out_of_band = arguments.out_of_band;
  const topology::Graph graph = topology::named(record.topology);
  const auto start = std::chrono::steady_clock::now();
  const auto stale =
      live::start_keeper(live::StateFolder(), record, graph, testbed::roce_fabric_options(graph, record.out_of_band));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (stale) {
    fmt::print(stderr, "plugfest: removed the earlier fabric {}: its keeper, process {}, had been killed\n",
               stale->name, stale->keeper);
  }
  fmt::print("{}: {}, {}, up in {:.2f} s\n", record.name, graph.name, size_of(graph), seconds);
  const std::string program = shell_word(program_as_typed());
  fmt::print("  {} fabric exec {} {} -- ibv_devinfo\n", program, record.name, graph.hosts.front().name);
  fmt::print("  {} fabric down {}\n", program, record.name);
  return 0;
}

int list() {
  for (const live::Record& record : background_fabrics()) {
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
    throw std::runtime_error("fabric down: expected the name of a fabric or --all");
  std::vector<live::Record> records;
  if (arguments.all) {
    records = background_fabrics();
  } else {
    records.push_back(*FabricSelection::background(arguments.name).record());
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

  Command up_command = fabric.add_subcommand("up", "Build a background fabric",
                                             "A background fabric persists until fabric down. It needs no root.");
  up_command
      .add_option("NAME", arguments->name,
                  "Name of the fabric; a topology such as fat-tree:4 is both topology and name")
      .required();
  up_command.add_option("-t,--topology", arguments->topology, "Hosts and links to build; default: triangle")
      .type_name("NAME|FILE");
  up_command.add_flag("--oob", arguments->out_of_band,
                      "Give each host an interface oob0 on one shared network without NICs");
  up_command.set_body([arguments] { return up(*arguments); });

  Command list_command = fabric.add_subcommand("list", "List the background fabrics");
  list_command.set_body([] { return list(); });

  Command down_command = fabric.add_subcommand("down", "Remove a background fabric and end its processes");
  down_command.add_option("NAME", arguments->name, "Fabric to remove");
  down_command.add_flag("--all", arguments->all, "Remove all background fabrics");
  down_command.set_body([arguments] { return down(*arguments); });
}

}  // namespace plugfest::cli
