// Mode tools: optional programs.
#include <fmt/format.h>

#include <array>

#include "harness/doctor/distribution.h"
#include "harness/doctor/modes/modes.h"

namespace plugfest::doctor {
namespace {

struct Tool {
  const char* program;
  const char* package;  ///< Debian's name; null if the site provides it
  const char* use;
};

constexpr std::array kTools = {
    Tool{"ib_write_bw", "perftest", "bandwidth and latency of verbs"},
    Tool{"ibv_devinfo", "ibverbs-utils", "attributes of verbs devices"},
    Tool{"tshark", "tshark", "reading captures"},
    Tool{"iperf3", "iperf3", "TCP, for comparison"},
    Tool{"dot", "graphviz", "drawing fabrics"},
    Tool{"mpirun", nullptr, "MPI"},
    Tool{"srun", nullptr, "Slurm"},
};

}  // namespace

std::vector<Finding> examine_tools(const Machine& machine) {
  std::vector<Finding> findings;
  for (const Tool& tool : kTools) {
    const std::string path = machine.program(tool.program);
    Finding it{.name = tool.program};
    it.text = fmt::format("{} ({})", path.empty() ? "not installed" : path, tool.use);
    if (path.empty()) it.state = State::kNote;
    if (path.empty() && tool.package != nullptr) it.mend = install(machine, tool.package);
    findings.push_back(it);
  }
  return findings;
}

}  // namespace plugfest::doctor
