// plugfest fabric: look at a fabric, and run programs inside its hosts.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "conformance/rules/ground.h"
#include "fabric/netns/sandbox.h"
#include "fabric/topology/draw.h"
#include "fabric/topology/graph.h"
#include "harness/cli/command.h"
#include "harness/cli/stop.h"
#include "harness/report/output_file.h"

namespace plugfest::cli {
namespace {

struct Arguments {
  std::string topology = "triangle";
  std::string host;
  std::vector<std::string> command;
  std::string json;
  std::string drawing = "/dev/stdout";
};

/// Waits for the child and passes on the signals that this process gets. 128 plus the signal for one that was killed.
int wait_for(pid_t child) {
  int passed_on = 0;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw std::runtime_error(fmt::format("waiting for the command: {}", std::strerror(errno)));
    if (stop_signal() != passed_on) kill(child, passed_on = stop_signal());
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int execute(const Arguments& arguments) {
  const topology::Graph graph = topology::named(arguments.topology);
  graph.host(arguments.host);  // names the hosts there are when there is none of that name
  if (const std::optional<int> exit_code = netns::enter_sandbox()) return *exit_code;
  conformance::Ground ground(graph, false);
  stop_on_signals();
  netns::Command command{.argv = arguments.command};
  command.environment = conformance::Ground::nic_environment();
  return wait_for(ground.fabric().spawn(arguments.host, command));
}

int show(const Arguments& arguments) {
  const topology::Graph graph = topology::named(arguments.topology);
  nlohmann::ordered_json json = {{"topology", graph.name}, {"links", nlohmann::ordered_json::array()}};
  fmt::print("{}: {} hosts, {} switches, {} links\n", graph.name, graph.hosts.size(), graph.switches.size(),
             graph.links.size());
  for (const topology::Link& link : graph.links) {
    const auto end = [&](int i) {
      const topology::LinkEnd& it = link.ends[static_cast<std::size_t>(i)];
      const topology::Interface& interface = graph.interface(it);
      return std::pair(fmt::format("{}.{}", graph.node_name(it), interface.name),
                       interface.address.value == 0 ? "" : interface.address.text());
    };
    fmt::print("  {:<12} {:<16} — {:<12} {:<16}  {}  MTU {}{}\n", end(0).first, end(0).second, end(1).first,
               end(1).second, link.subnet.text(), link.mtu_bytes,
               link.rate_bits_per_second == 0
                   ? ""
                   : fmt::format("  {:g} Gbit/s", static_cast<double>(link.rate_bits_per_second) / 1e9));
    json["links"].push_back(
        {{"ends",
          {{{"name", end(0).first}, {"address", end(0).second}}, {{"name", end(1).first}, {"address", end(1).second}}}},
         {"subnet", link.subnet.text()},
         {"mtu_bytes", link.mtu_bytes},
         {"rate_bits_per_second", link.rate_bits_per_second}});
  }
  if (!arguments.json.empty()) report::OutputFile(arguments.json).write(json.dump(2) + '\n');
  return 0;
}

int draw(const Arguments& arguments) {
  const std::string drawing = topology::to_dot(topology::named(arguments.topology));
  report::OutputFile(arguments.drawing).write(drawing);
  return 0;
}

void add_topology(CLI::App& command, const std::shared_ptr<Arguments>& arguments) {
  command.add_option("-t,--topology", arguments->topology, "Hosts and links; default: triangle")->type_name("NAME");
}

}  // namespace

void add_fabric(CLI::App& app, Body& chosen) {
  CLI::App* fabric = app.add_subcommand("fabric", "Look at a fabric, and run programs inside its hosts");
  fabric->require_subcommand(1);
  auto arguments = std::make_shared<Arguments>();

  CLI::App* exec = fabric->add_subcommand("exec", "Build the fabric, run a command inside one host, take it down");
  add_topology(*exec, arguments);
  exec->add_option("HOST", arguments->host, "Name of the host")->required();
  exec->add_option("COMMAND", arguments->command, "Program and its arguments, after --")->required();
  exec->callback([arguments, &chosen] { chosen = [arguments] { return execute(*arguments); }; });

  CLI::App* show_command = fabric->add_subcommand("show", "Print hosts, links and addresses");
  add_topology(*show_command, arguments);
  show_command->add_option("--json", arguments->json, "Write them there as JSON")->type_name("FILE");
  show_command->callback([arguments, &chosen] { chosen = [arguments] { return show(*arguments); }; });

  CLI::App* draw_command = fabric->add_subcommand("draw", "Draw it for Graphviz: fabric draw | dot -Tsvg > fabric.svg");
  add_topology(*draw_command, arguments);
  draw_command->add_option("-o,--output", arguments->drawing, "Write the drawing there; default: standard output")
      ->type_name("FILE");
  draw_command->callback([arguments, &chosen] { chosen = [arguments] { return draw(*arguments); }; });
}

}  // namespace plugfest::cli
