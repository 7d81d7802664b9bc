// plugfest fabric; fabric exec: runs a command in a host; fabric draw: prints a drawing.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "fabric/system/process.h"
#include "fabric/topology/draw.h"
#include "fabric/topology/graph.h"
#include "harness/bed/roce.h"
#include "harness/cli/command.h"
#include "harness/cli/fabric/fabric.h"
#include "harness/cli/options/fabric_selection.h"
#include "harness/cli/options/subject.h"
#include "harness/cli/stop.h"
#include "harness/report/output_file.h"

namespace plugfest::cli {
namespace {

struct Arguments {
  std::string topology;
  std::string name;
  std::string drawing = "/dev/stdout";
};

/// Waits for `child` and forwards signals to it. Returns its exit code, or 128 plus the signal that killed it.
int wait_for(pid_t child) {
  int forwarded = 0;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw std::runtime_error(fmt::format("waiting for the command: {}", std::strerror(errno)));
    if (stop_signal() != forwarded) kill(child, forwarded = stop_signal());
  }
  return exit_code_of(status);
}

/// `words`: NAME HOST -- COMMAND, HOST -- COMMAND or HOST COMMAND.
int execute(const std::vector<std::string>& words, const std::string& topology) {
  const auto dashes = std::find(words.begin(), words.end(), "--");
  const auto location_words =
      dashes == words.end() ? std::min<std::ptrdiff_t>(std::ssize(words), 1) : dashes - words.begin();
  if (location_words < 1 || location_words > 2) {
    throw std::runtime_error(fmt::format("fabric exec: expected [NAME] HOST -- COMMAND; see {} fabric exec --help",
                                         shell_word(program_as_typed())));
  }
  netns::Command command;
  command.argv.assign(words.begin() + location_words + (dashes == words.end() ? 0 : 1), words.end());
  if (command.argv.empty()) {
    throw std::runtime_error(
        fmt::format("COMMAND is missing; see {} fabric exec --help", shell_word(program_as_typed())));
  }
  command.environment = bed::roce_environment();
  FabricSelection selection = FabricSelection::of(location_words == 2 ? words[0] : "", topology);
  const std::string& host = words[static_cast<std::size_t>(location_words) - 1];
  selection.require_node(host);
  command.host_name = host;
  command.environment.emplace_back("HOSTNAME", host);  // which bash does not change if it is set

  const std::unique_ptr<bed::NicKind> nic = bed::default_nic_kind();
  if (const std::optional<int> exit_code = selection.enter(*nic)) return *exit_code;
  bed::TestBed bed = selection.build(*nic, false);
  stop_on_signals();
  try {
    return wait_for(bed.fabric().spawn(host, command));
  } catch (const netns::CannotExecute& error) {
    fmt::print(stderr, "plugfest: {}\n", error.what());
    return error.exit_code;
  }
}

int draw(const Arguments& arguments) {
  const std::string drawing = topology::to_dot(FabricSelection::of(arguments.name, arguments.topology).graph());
  report::OutputFile(arguments.drawing).write(drawing);
  return 0;
}

void add_topology(Command command, const std::shared_ptr<Arguments>& arguments) {
  command
      .add_option("-t,--topology", arguments->topology,
                  "Topology instead of a background fabric; default: the background fabric, else triangle")
      .type_name("NAME|FILE");
}

}  // namespace

void add_fabric(Command program) {
  Command fabric = program.add_subcommand("fabric", "Build and inspect fabrics, run commands in hosts");
  fabric.require_subcommand();
  auto arguments = std::make_shared<Arguments>();

  add_fabric_background(fabric);
  add_fabric_pcap(fabric);
  add_fabric_show(fabric);

  Command exec = fabric.add_subcommand("exec", "Run a command in a host",
                                       "Arguments: [NAME] HOST -- COMMAND. NAME is a background fabric; default: the "
                                       "only one. If none is up, the command "
                                       "gets a fabric of its own. Exit code: that of the command; 127 if it does not "
                                       "exist, 126 if it cannot be executed, 128 plus the number of the signal that "
                                       "killed it; 2 if there is no such host.");
  add_topology(exec, arguments);
  exec.keep_rest();
  exec.set_body([arguments, exec] { return execute(exec.rest(), arguments->topology); });

  Command draw_command =
      fabric.add_subcommand("draw", "Print a drawing for Graphviz", "Example: fabric draw | dot -Tsvg > fabric.svg");
  add_topology(draw_command, arguments);
  draw_command.add_option("NAME", arguments->name, "Background fabric");
  draw_command.add_option("-o,--output", arguments->drawing, "Output file; default: standard output").type_name("FILE");
  draw_command.set_body([arguments] { return draw(*arguments); });
}

}  // namespace plugfest::cli
