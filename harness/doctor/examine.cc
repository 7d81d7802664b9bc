#include "harness/doctor/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "harness/doctor/distribution.h"
#include "harness/doctor/modes/modes.h"

namespace plugfest::doctor {
namespace {

struct Known {
  const char* name;
  const char* title;
  const char* command;
  std::vector<Finding> (*examine)(const Machine&);
};

constexpr std::array kModes = {
    Known{kDefaultMode, "emulated hosts, the NIC in user space", "plugfest run", examine_fabric},
    Known{"loopback", "hosts as addresses 127.x.y.z, no namespaces", "plugfest run --nic loopback", examine_loopback},
    Known{"rxe", "emulated hosts, the kernel's software NIC", "plugfest run --nic rxe", examine_rxe},
    Known{"vm", "the same in a virtual machine", "plugfest run --nic vm", examine_vm},
    Known{"system", "this machine's own RDMA devices", "plugfest run --nic system", examine_system},
    Known{"nccl", "NVIDIA's transports and loader", "plugfest run --plugin nccl:IB", examine_nccl},
    Known{"tools", "programs to use beside it", "", examine_tools},
};

}  // namespace

std::vector<std::string> mode_names() {
  std::vector<std::string> names;
  for (const Known& known : kModes) names.emplace_back(known.name);
  return names;
}

Diagnosis examine(const Machine& machine, const std::vector<std::string>& wanted) {
  const std::vector<std::string> names = mode_names();
  for (const std::string& name : wanted) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw std::runtime_error(fmt::format("--for \"{}\": there are {}", name, fmt::join(names, ", ")));
  }
  Diagnosis diagnosis;
  diagnosis.patient = {.system = os_release(machine, "PRETTY_NAME"),
                       .kernel = machine.kernel(),
                       .architecture = machine.architecture(),
                       .user = machine.is_root() ? "root" : fmt::format("user {}", machine.user())};
  for (const Known& known : kModes) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), known.name) == wanted.end()) continue;
    diagnosis.modes.push_back({known.name, known.title, known.command, known.examine(machine)});
  }
  return diagnosis;
}

}  // namespace plugfest::doctor
