// The facts about this host: system, versions, RDMA devices and findings.
#include "harness/cluster/agents/agent.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "harness/doctor/examine.h"
#include "harness/doctor/machine.h"
#include "harness/doctor/verbs_device.h"
#include "harness/report/results.h"
#include "harness/wire/json.h"

namespace plugfest::cluster {
namespace {

using nlohmann::ordered_json;

// Texts of doctor::State.
constexpr const char* kStates[] = {"good", "note", "warning", "bad"};

ordered_json describe(const doctor::VerbsDevice& device) {
  ordered_json ports = ordered_json::array();
  for (const doctor::VerbsPort& port : device.ports) {
    std::string gid;
    for (const doctor::Gid& candidate : port.gids)
      if (gid.empty() && candidate.type == "RoCE v2" && !candidate.ipv4().empty())
        gid = fmt::format("index {} RoCE v2", candidate.index);
    const auto paused = port.interface.empty() ? std::nullopt : doctor::paused_priorities(port.interface);
    ports.push_back({{"port", port.number},
                     {"state", port.state},
                     {"link_layer", port.link_layer},
                     {"rate", port.rate},
                     {"mtu", port.mtu_bytes},
                     {"gid", gid},
                     {"pfc", paused ? fmt::format("0x{:02x}", *paused) : "unknown"}});
  }
  return {{"name", device.name},
          {"driver", device.driver},
          {"firmware", device.firmware},
          {"model", device.model},
          {"ports", std::move(ports)}};
}

}  // namespace

std::string facts(const std::string& plugin) {
  const doctor::Machine machine = doctor::Machine::this_machine("plugfest");
  const doctor::Diagnosis diagnosis = doctor::examine(machine, {"system"});
  const report::Environment environment = report::this_environment();
  ordered_json devices = ordered_json::array();
  for (const doctor::VerbsDevice& device : doctor::verbs_devices(machine)) devices.push_back(describe(device));
  ordered_json findings = ordered_json::array();
  for (const doctor::Mode& mode : diagnosis.modes) {
    for (const doctor::Finding& finding : mode.findings) {
      findings.push_back({{"name", finding.name},
                          {"state", kStates[static_cast<std::size_t>(finding.state)]},
                          {"text", finding.text},
                          {"fix", finding.fix}});
    }
  }
  return wire::json_text({{"system", diagnosis.machine.system},
                          {"kernel", environment.kernel},
                          {"cpu", environment.cpu},
                          {"user", environment.privileges},
                          {"plugin", {{"path", plugin}, {"sha256", sha256_of_file(plugin)}}},
                          {"tool", {{"sha256", sha256_of_file("/proc/self/exe")}}},
                          {"devices", std::move(devices)},
                          {"findings", std::move(findings)}});
}

}  // namespace plugfest::cluster
