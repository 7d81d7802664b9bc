// plugfest doctor: shows which modes this machine can run, and the commands that enable the others.
#include "fabric/system/process.h"
#include "harness/doctor/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "fabric/system/file.h"
#include "harness/cli/command.h"
#include "harness/cli/subject.h"
#include "harness/report/console.h"
#include "harness/report/output_file.h"
#include "version.h"

namespace plugfest::cli {
namespace {

struct Arguments {
  std::vector<std::string> wanted;
  std::string json;
  std::string plugin;
  std::vector<std::string> peers;
};

// The hosts of --peer. Errors: std::runtime_error that names the file.
std::vector<doctor::MeshHost> read_peers(const std::vector<std::string>& files) {
  std::vector<doctor::MeshHost> hosts;
  for (const std::string& file : files) hosts.push_back(doctor::read_mesh_host(read_file(file), file));
  return hosts;
}

// Returns 0 if all requested modes work; without a request, if the default mode works. Otherwise returns 1.
int diagnose(const Arguments& arguments) {
  const std::vector<doctor::MeshHost> peers = read_peers(arguments.peers);
  const auto json = report::open_output(arguments.json);
  const doctor::Diagnosis diagnosis =
      doctor::examine(doctor::Machine::this_machine(program_as_typed()), arguments.wanted, peers);
  if (json) json->write(doctor::to_json(diagnosis, PLUGFEST_VERSION));
  if (!report::is_standard_output(arguments.json))
    fmt::print("{}", doctor::to_text(diagnosis, report::Style::of(stdout).color));
  const bool works = std::all_of(diagnosis.modes.begin(), diagnosis.modes.end(), [&](const doctor::Mode& mode) {
    return mode.works() || (arguments.wanted.empty() && mode.name != doctor::kDefaultMode);
  });
  return works ? 0 : 1;
}

}  // namespace

void add_doctor(Command program) {
  Command command = program.add_subcommand("doctor", "Show which modes work on this machine");
  auto arguments = std::make_shared<Arguments>();
  command.add_option("--for MODE", arguments->wanted,
                     fmt::format("Examine only this mode; exit code 1 if it does not work: {}; repeatable",
                                 fmt::join(doctor::mode_names(), ", ")),
                     {.delimiter = ','});
  command.add_option("--json FILE", arguments->json,
                     "Also write the findings to FILE as JSON; without FILE, print JSON instead of the table",
                     {.if_bare = "/dev/stdout"});
  command.add_option("--plugin mesh", arguments->plugin,
                     "Examine the NICs, subnets and MTUs that the mesh plugin can use; same as --for mesh",
                     {.one_of = {std::string(doctor::kMeshMode)}});
  command.add_option("--peer FILE", arguments->peers,
                     "With --plugin mesh: also compare with the host whose findings are in FILE; repeatable");
  command.set_body([arguments] {
    if (!arguments->plugin.empty()) arguments->wanted.emplace_back(doctor::kMeshMode);
    return diagnose(*arguments);
  });
}

}  // namespace plugfest::cli
