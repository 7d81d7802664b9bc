// The facts about this host: system, versions, RDMA devices and findings.
#include "harness/cluster/agents/agent.h"

#include <fmt/format.h>

#include "harness/cluster/plan.h"
#include "harness/doctor/examine.h"
#include "harness/doctor/machine.h"
#include "harness/doctor/verbs_device.h"
#include "harness/report/results.h"
#include "harness/wire/json.h"

namespace plugfest::cluster {
namespace {

HostFacts::Device describe(const doctor::VerbsDevice& device) {
  HostFacts::Device described{device.name, device.driver, device.firmware, device.model};
  for (const doctor::VerbsPort& port : device.ports) {
    std::string gid;
    for (const doctor::Gid& candidate : port.gids)
      if (gid.empty() && candidate.type == "RoCE v2" && !candidate.ipv4().empty())
        gid = fmt::format("index {} RoCE v2", candidate.index);
    const auto paused = port.interface.empty() ? std::nullopt : doctor::paused_priorities(port.interface);
    described.ports.push_back({port.number, port.state, port.link_layer, port.rate, port.mtu_bytes, gid,
                               paused ? fmt::format("0x{:02x}", *paused) : "unknown"});
  }
  return described;
}

}  // namespace

std::string facts(const std::string& plugin) {
  const doctor::Machine machine = doctor::Machine::this_machine("plugfest");
  doctor::Diagnosis diagnosis = doctor::examine(machine, {"system"});
  const report::Environment environment = report::this_environment();
  HostFacts facts{.system = diagnosis.machine.system,
                  .kernel = environment.kernel,
                  .cpu = environment.cpu,
                  .user = environment.privileges,
                  .plugin_path = plugin,
                  .plugin_sha256 = sha256_of_file(plugin),
                  .tool_sha256 = sha256_of_file("/proc/self/exe")};
  for (const doctor::VerbsDevice& device : doctor::verbs_devices(machine)) facts.devices.push_back(describe(device));
  for (doctor::Mode& mode : diagnosis.modes) doctor::append(facts.findings, std::move(mode.findings));
  return wire::json_text(facts);
}

}  // namespace plugfest::cluster
