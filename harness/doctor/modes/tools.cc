// Programs that plugfest or its user can put to use beside it.
#include <fmt/format.h>

#include <array>

#include "harness/doctor/distribution.h"
#include "harness/doctor/modes/modes.h"

namespace plugfest::doctor {
namespace {

struct Tool {
  const char* program;
  const char* package;  ///< Debian's name; null for what a site brings itself
  const char* use;
};

constexpr std::array kTools = {
    Tool{"ib_write_bw", "perftest", "bandwidth and latency of verbs"},
    Tool{"ibv_devinfo", "ibverbs-utils", "what a verbs device says of itself"},
    Tool{"tshark", "tshark", "reading captures"},
    Tool{"iperf3", "iperf3", "TCP beside it"},
    Tool{"dot", "graphviz", "drawings of fabrics"},
    Tool{"mpirun", nullptr, "MPI"},
    Tool{"srun", nullptr, "Slurm"},
};

}  // namespace

std::vector<Finding> examine_tools(const Machine& machine) {
  std::vector<Finding> findings;
  for (const Tool& tool : kTools) {
    const std::string path = machine.program(tool.program);
    Finding it{.name = tool.program};
    it.text = fmt::format("{} ({})", path.empty() ? "not here" : path, tool.use);
    if (path.empty()) it.state = State::kNote;
    if (path.empty() && tool.package != nullptr) it.mend = install(machine, tool.package);
    findings.push_back(it);
  }
  return findings;
}

}  // namespace plugfest::doctor
