// plugfest fabric up, list, down: background fabrics.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "fabric/live/keeper.h"
#include "fabric/live/live_fabric.h"
#include "harness/bed/roce.h"
#include "harness/cli/fabric/fabric.h"
#include "harness/cli/options/fabric_selection.h"
#include "harness/cli/options/subject.h"
#include "harness/report/output_file.h"
#include "harness/wire/json.h"

namespace plugfest::cli {
namespace {

using nlohmann::ordered_json;

struct Arguments {
  std::string name;
  std::vector<std::string> names;
  std::string json;
  std::string topology;
  bool out_of_band = false;
  bool all = false;
};

/// Derives name and topology from `fabric up WORD`: without --topology, WORD is a topology if it names one. A misspelt
/// topology is refused, since it would otherwise name a triangle.
void interpret(const Arguments& arguments, std::string& name, std::string& topology) {
  name = arguments.name;
  topology = arguments.topology;
  if (!topology.empty()) return;
  topology = "triangle";
  if (name.ends_with(".yaml") || name.ends_with(".yml")) {
    topology = name;
    name = name.substr(name.rfind('/') + 1);
    name = name.substr(0, name.rfind('.'));
    return;
  }
  const std::string word = name.substr(0, name.find(':'));
  const std::string nearest = topology::nearest_name(word);
  if (nearest == word) {
    topology = name;
  } else if (!nearest.empty() || name.find_first_of(":=,") != std::string::npos) {
    throw std::runtime_error(fmt::format(
        "fabric up {}: no topology \"{}\"{}; add --topology TOPOLOGY to give a fabric this name", name, word,
        nearest.empty() ? "" : fmt::format(": did you mean {}?", nearest + name.substr(word.size()))));
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
      live::start_keeper(live::StateFolder(), record, graph, bed::roce_fabric_options(graph, record.out_of_band));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (stale && stale->keeper > 0) {
    fmt::print(stderr, "plugfest: removed the earlier fabric {}: its keeper, process {}, had been killed\n",
               stale->name, stale->keeper);
  }
  fmt::print("{}: {}, {}, up in {:.2f} s\n", record.name, graph.name, graph.size_text(), seconds);
  const std::string program = shell_word(program_as_typed());
  fmt::print("  {} fabric exec {} {} -- ibv_devinfo\n", program, record.name, graph.hosts.front().name);
  fmt::print("  {} fabric down {}\n", program, record.name);
  return 0;
}

/// Each fabric gets a line, also one whose record or topology cannot be read.
int list(const Arguments& arguments) {
  ordered_json json = ordered_json::array();
  std::string text;
  for (const live::Record& record : background_fabrics()) {
    try {
      const topology::Graph graph = FabricSelection::graph_of(record);
      text += fmt::format("{:<14} {:<18} {:>4} hosts  {:%F %H:%M}  keeper {}\n", record.name, record.topology,
                          graph.hosts.size(), fmt::localtime(record.since), record.keeper);
      json.push_back({{"name", record.name},
                      {"topology", record.topology},
                      {"hosts", graph.hosts.size()},
                      {"switches", graph.switches.size()},
                      {"links", graph.links.size()},
                      {"out_of_band", record.out_of_band},
                      {"since", fmt::format("{:%FT%TZ}", fmt::gmtime(record.since))},
                      {"keeper", record.keeper}});
    } catch (const std::runtime_error& error) {
      text += fmt::format("{}\n", error.what());
      json.push_back({{"name", record.name}, {"problem", error.what()}});
    }
  }
  if (!arguments.json.empty()) report::OutputFile(arguments.json).write(wire::json_text(json));
  if (!report::is_standard_output(arguments.json)) fmt::print("{}", text);
  return 0;
}

/// Removes as many of the fabrics as possible.
int down(const Arguments& arguments) {
  if (arguments.all == !arguments.names.empty())
    throw std::runtime_error("fabric down: expected the names of fabrics or --all");
  std::vector<live::Record> records;
  if (arguments.all) records = background_fabrics();
  for (const std::string& name : arguments.names) records.push_back(background_fabric(name));
  int exit_code = 0;
  for (const live::Record& record : records) {
    try {
      live::take_down(live::StateFolder(), record.name);
      fmt::print("{}: down\n", record.name);
    } catch (const std::runtime_error& error) {
      fmt::print(stderr, "plugfest: {}\n", error.what());
      exit_code = 2;
    }
  }
  return exit_code;
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
  list_command
      .add_option("--json", arguments->json,
                  "Also write the list to FILE as JSON; without FILE, print JSON instead of the table")
      .type_name("FILE")
      .expected(0, 1)
      .value_if_bare("/dev/stdout");
  list_command.set_body([arguments] { return list(*arguments); });

  Command down_command = fabric.add_subcommand("down", "Remove background fabrics and end their processes");
  down_command.add_option("NAME", arguments->names, "Fabrics to remove");
  down_command.add_flag("--all", arguments->all, "Remove all background fabrics");
  down_command.set_body([arguments] { return down(*arguments); });
}

}  // namespace plugfest::cli
