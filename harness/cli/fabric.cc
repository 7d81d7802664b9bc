// plugfest fabric: builds background fabrics (up, list, down) and runs commands in hosts (exec).
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fabric/live/keeper.h"
#include "fabric/live/live_fabric.h"
#include "fabric/netns/supervision.h"
#include "fabric/system/blocked_signals.h"
#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "fabric/system/process.h"
#include "fabric/system/text.h"
#include "harness/bed/nic_kind.h"
#include "harness/bed/reduction.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/wire/json.h"

namespace plugfest::cli {
namespace {

using nlohmann::ordered_json;

struct Arguments {
  std::string name;
  std::vector<std::string> names;
  std::string topology;
  std::string json;
  bool out_of_band = false;
  bool reduction = false;
  bool all = false;
};

// The first signal that ends programs and waits to be read; 0: none.
int pending_end() {
  sigset_t pending;
  sigpending(&pending);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM})
    if (sigismember(&pending, number) == 1) return number;
  return 0;
}

// `words`: NAME HOST -- COMMAND, HOST -- COMMAND or HOST COMMAND.
int execute(const std::vector<std::string>& words, const std::string& topology) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const auto location_words =
      dashes == words.end() ? std::min<std::ptrdiff_t>(std::ssize(words), 1) : dashes - words.begin();
  if (location_words < 1 || location_words > 2) {
    throw std::runtime_error(
        fmt::format("fabric exec: expected [NAME] HOST -- COMMAND; see {} fabric exec --help", program_as_typed()));
  }
  netns::Command command;
  command.argv.assign(words.begin() + location_words + (dashes == words.end() ? 0 : 1), words.end());
  if (command.argv.empty())
    throw std::runtime_error(fmt::format("COMMAND is missing; see {} fabric exec --help", program_as_typed()));
  command.environment = bed::roce_program_environment();
  bed::FabricChoice fabric = bed::FabricChoice::of(location_words == 2 ? words[0] : "", topology);
  const std::string& host = words[static_cast<std::size_t>(location_words) - 1];
  fabric.require_node(host);
  if (fabric.record && fabric.record->reduction) bed::add_reduction(fabric.graph, command.environment);
  command.host_name = host;
  command.environment.emplace_back("HOSTNAME", host);  // bash does not change it if it is set

  bed::RunBed run(std::move(fabric));
  if (const std::optional<int> exit_code = run.enter()) return *exit_code;
  // Threads of the test bed have the same mask: only supervise() takes signals.
  const BlockedSignals blocked;
  sigset_t all;
  sigfillset(&all);
  bed::TestBed& bed = run.build(false);
  // The terminal's Ctrl-C has not reached a command that does not exist yet.
  if (const int signal = pending_end(); signal != 0) return kKilledBySignal + signal;
  try {
    return netns::supervise(bed.fabric().spawn(host, command), all);
  } catch (const netns::CannotExecute& error) {
    fmt::print(stderr, "plugfest: {}\n", error.what());
    return error.exit_code;
  }
}

// Derives name and topology from `fabric up WORD`: without --topology, WORD is a topology if it names one. A misspelt
// topology is refused, since it would otherwise become the name of a triangle.
void interpret(const Arguments& arguments, std::string& name, std::string& topology) {
  name = arguments.name;
  topology = arguments.topology;
  if (!topology.empty()) return;
  topology = "triangle";
  if (is_yaml_file(name)) {
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
  record.reduction = arguments.reduction;
  const topology::Graph graph = topology::named(record.topology);
  live::Attach attach;
  if (record.reduction) {
    bed::require_reduction(graph, "fabric up --reduction");
    attach = bed::start_reduction;
  }
  const Stopwatch watch;
  const auto stale = live::start_keeper(live::StateFolder(), record, graph,
                                        bed::roce_fabric_options(graph, record.out_of_band), attach);
  const double seconds = watch.seconds();
  if (stale && stale->keeper > 0) {
    fmt::print(stderr, "plugfest: removed the earlier fabric {}: its keeper, process {}, had been killed\n",
               stale->name, stale->keeper);
  }
  fmt::print("{}: {}, {}, up in {:.2f} s\n", record.name, graph.name, graph.size_text(), seconds);
  const std::string program = program_as_typed();
  fmt::print("  {} fabric exec {} {} -- ibv_devinfo\n", program, record.name, graph.hosts.front().name);
  fmt::print("  {} fabric down {}\n", program, record.name);
  return 0;
}

// Prints a line for each fabric, even if its record or topology cannot be read.
int list(const Arguments& arguments) {
  ordered_json json = ordered_json::array();
  std::string text;
  for (const live::Record& record : bed::background_fabrics()) {
    try {
      const topology::Graph graph = bed::graph_of(record);
      text += fmt::format("{:<14} {:<18} {:>4} hosts  {:%F %H:%M}  keeper {}\n", record.name, record.topology,
                          graph.hosts.size(), fmt::localtime(record.since), record.keeper);
      json.push_back({{"name", record.name},
                      {"topology", record.topology},
                      {"hosts", graph.hosts.size()},
                      {"switches", graph.switches.size()},
                      {"links", graph.links.size()},
                      {"out_of_band", record.out_of_band},
                      {"reduction", record.reduction},
                      {"since", fmt::format("{:%FT%TZ}", fmt::gmtime(record.since))},
                      {"keeper", record.keeper}});
    } catch (const std::runtime_error& error) {
      text += fmt::format("{}\n", error.what());
      json.push_back({{"name", record.name}, {"problem", error.what()}});
    }
  }
  if (const auto output = report::open_output(arguments.json)) output->write(wire::json_text(json));
  if (!report::is_standard_output(arguments.json)) fmt::print("{}", text);
  return 0;
}

// Removes as many of the fabrics as possible.
int down(const Arguments& arguments) {
  if (arguments.all == !arguments.names.empty())
    throw std::runtime_error("fabric down: expected the names of fabrics or --all");
  std::vector<live::Record> records;
  if (arguments.all) records = bed::background_fabrics();
  for (const std::string& name : arguments.names) records.push_back(bed::background_fabric(name));
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
  if (const auto folder = live::StateFolder::existing(); folder && arguments.all) folder->remove_if_empty();
  return exit_code;
}

}  // namespace

void add_fabric(Command program) {
  Command fabric = program.add_subcommand("fabric", "Build and inspect fabrics, run commands in hosts");
  fabric.require_subcommand();
  auto arguments = std::make_shared<Arguments>();

  Command up_command = fabric.add_subcommand("up", "Build a background fabric",
                                             "A background fabric persists until fabric down. It needs no root.");
  up_command.add_option("NAME", arguments->name,
                        "Name of the fabric; a topology such as fat-tree:4 is both topology and name",
                        {.required = true});
  add_topology_option(up_command, arguments->topology, "triangle");
  up_command.add_flag("--oob", arguments->out_of_band,
                      "Give each host an interface oob0 on one shared network without NICs");
  up_command.add_flag("--reduction", arguments->reduction,
                      "Let switches reduce: programs under `fabric exec` get plugfest's libsharp_coll.so.5");
  up_command.set_body([arguments] { return up(*arguments); });

  Command list_command = fabric.add_subcommand("list", "List the background fabrics");
  list_command.add_option("--json FILE", arguments->json,
                          "Also write the list to FILE as JSON; without FILE, print JSON instead of the table",
                          {.if_bare = "/dev/stdout"});
  list_command.set_body([arguments] { return list(*arguments); });

  Command down_command = fabric.add_subcommand("down", "Remove background fabrics and end their processes");
  down_command.add_option("NAME", arguments->names, "Fabrics to remove");
  down_command.add_flag("--all", arguments->all, "Remove all background fabrics");
  down_command.set_body([arguments] { return down(*arguments); });
  Command exec = fabric.add_subcommand(
      "exec", "Run a command in a host",
      "Arguments: [NAME] HOST -- COMMAND. NAME is a background fabric; default: the only one. If none is up, the "
      "command runs in a new fabric. Exit code: the command's; 127 if it does not exist, 126 if it cannot be "
      "executed, 128 plus the number of the signal that killed it; 2 if there is no such host.");
  add_topology_option(exec, arguments->topology, "the background fabric, else triangle");
  exec.keep_rest();
  exec.set_body([arguments, exec] { return execute(exec.rest(), arguments->topology); });

  add_fabric_views(fabric);
}

}  // namespace plugfest::cli
