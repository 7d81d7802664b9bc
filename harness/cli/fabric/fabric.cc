// plugfest fabric: look at a fabric, and run programs inside its hosts.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "conformance/rules/ground.h"
#include "fabric/topology/draw.h"
#include "fabric/topology/graph.h"
#include "harness/cli/command.h"
#include "harness/cli/fabric/fabric.h"
#include "harness/cli/options/place.h"
#include "harness/cli/stop.h"
#include "harness/report/output_file.h"

namespace plugfest::cli {
namespace {

struct Arguments {
  std::string topology;
  std::string name;
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

/// `words`: NAME HOST -- COMMAND, HOST -- COMMAND or HOST COMMAND.
int execute(const std::vector<std::string>& words, const std::string& topology) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const auto place_words =
      dashes == words.end() ? std::min<std::ptrdiff_t>(std::ssize(words), 1) : dashes - words.begin();
  if (place_words < 1 || place_words > 2) {
    throw std::runtime_error("fabric exec: expected [NAME] HOST -- COMMAND; see plugfest fabric exec --help");
  }
  netns::Command command;
  command.argv.assign(words.begin() + place_words + (dashes == words.end() ? 0 : 1), words.end());
  if (command.argv.empty()) throw std::runtime_error("COMMAND is missing; see plugfest fabric exec --help");
  command.environment = conformance::Ground::nic_environment();
  Place place = Place::of(place_words == 2 ? words[0] : "", topology);
  const std::string& host = words[static_cast<std::size_t>(place_words) - 1];
  place.require_node(host);

  if (const std::optional<int> exit_code = place.enter()) return *exit_code;
  conformance::Ground ground = place.ground(false);
  stop_on_signals();
  return wait_for(ground.fabric().spawn(host, command));
}

int draw(const Arguments& arguments) {
  const std::string drawing = topology::to_dot(Place::of(arguments.name, arguments.topology).graph());
  report::OutputFile(arguments.drawing).write(drawing);
  return 0;
}

void add_topology(Command command, const std::shared_ptr<Arguments>& arguments) {
  command
      .add_option("-t,--topology", arguments->topology,
                  "Hosts and links to build; default: the fabric that is up, else triangle")
      .type_name("NAME|FILE");
}

}  // namespace

void add_fabric(Command program) {
  Command fabric = program.add_subcommand("fabric", "Look at a fabric, and run programs inside its hosts");
  fabric.require_subcommand();
  auto arguments = std::make_shared<Arguments>();

  add_fabric_background(fabric);
  add_fabric_pcap(fabric);
  add_fabric_show(fabric);

  Command exec = fabric.add_subcommand("exec",
                                       "Run a command in a host: exec [NAME] HOST -- COMMAND. NAME is that of a "
                                       "fabric that is up; else the only one that "
                                       "is up, or one that is built for the command");
  add_topology(exec, arguments);
  exec.keep_rest();
  exec.set_body([arguments, exec] { return execute(exec.rest(), arguments->topology); });

  Command draw_command = fabric.add_subcommand("draw", "Draw it for Graphviz: fabric draw | dot -Tsvg > fabric.svg");
  add_topology(draw_command, arguments);
  draw_command.add_option("NAME", arguments->name, "A fabric that is up");
  draw_command.add_option("-o,--output", arguments->drawing, "Write the drawing there; default: standard output")
      .type_name("FILE");
  draw_command.set_body([arguments] { return draw(*arguments); });
}

}  // namespace plugfest::cli
