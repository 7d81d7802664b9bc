#include "harness/doctor/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "harness/doctor/distribution.h"
#include "harness/doctor/modes/mesh.h"
#include "harness/doctor/modes/modes.h"

namespace plugfest::doctor {
namespace {

struct KnownMode {
  const char* name;
  const char* title;
  const char* arguments;  ///< of plugfest; empty if the mode is no command
  std::vector<Finding> (*examine)(const Machine&);
};

constexpr std::array kModes = {
    KnownMode{kDefaultMode, "emulated hosts, the NIC in user space", "run", examine_fabric},
    KnownMode{"loopback", "hosts as addresses 127.x.y.z, no namespaces", "run --nic loopback", examine_loopback},
    KnownMode{"rxe", "emulated hosts, the kernel's software NIC", "run --nic rxe", examine_rxe},
    KnownMode{"vm", "the kernel's software NIC in a VM", "run --nic vm", examine_vm},
    KnownMode{"system", "this machine's own RDMA devices", "run --nic system", examine_system},
    KnownMode{kMeshMode, "the mesh plugin on these RDMA devices", "run --plugin mesh --nic system", examine_mesh},
    KnownMode{"nccl", "NCCL and its built-in transports", "run --plugin nccl:IB", examine_nccl},
    KnownMode{"tools", "optional programs", "", examine_tools},
};

}  // namespace

std::vector<std::string> mode_names() {
  std::vector<std::string> names;
  for (const KnownMode& known : kModes) names.emplace_back(known.name);
  return names;
}

Diagnosis examine(const Machine& machine, const std::vector<std::string>& wanted, const std::vector<MeshHost>& peers) {
  const std::vector<std::string> names = mode_names();
  for (const std::string& name : wanted) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw std::runtime_error(fmt::format("--for \"{}\": there are {}", name, fmt::join(names, ", ")));
  }
  Diagnosis diagnosis;
  diagnosis.machine = {.system = os_release(machine, "PRETTY_NAME"),
                       .kernel = machine.kernel(),
                       .architecture = machine.architecture(),
                       .user = machine.is_root() ? "root" : fmt::format("user {}", machine.user())};
  for (const KnownMode& known : kModes) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), known.name) == wanted.end()) continue;
    const std::string command = *known.arguments == '\0' ? "" : machine.plugfest() + " " + known.arguments;
    diagnosis.modes.push_back({known.name, known.title, command, known.examine(machine)});
    if (known.name != std::string_view(kMeshMode)) continue;
    diagnosis.mesh = mesh_host(machine);
    std::vector<MeshHost> hosts = {*diagnosis.mesh};
    hosts.insert(hosts.end(), peers.begin(), peers.end());
    for (Finding& pair : examine_pairs(hosts)) diagnosis.modes.back().findings.push_back(std::move(pair));
  }
  return diagnosis;
}

}  // namespace plugfest::doctor
