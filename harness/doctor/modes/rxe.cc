// Mode rxe: the kernel's software NIC.
#include <fmt/format.h>

#include "harness/doctor/distribution.h"
#include "harness/doctor/modes/modes.h"

namespace plugfest::doctor {
namespace {

Finding privilege(const Machine& machine) {
  if (machine.has_net_admin()) return {.name = "privilege", .text = "CAP_NET_ADMIN on this machine"};
  return {.name = "privilege",
          .state = State::kBad,
          .text = machine.is_root() ? "no CAP_NET_ADMIN in the initial user namespace, as in most containers: run "
                                      "outside, or start the container with --privileged"
                                    : "only root may create RDMA devices",
          .mend = machine.is_root() ? "" : "sudo " + machine.plugfest() + " run --nic rxe"};
}

bool is_blacklisted(const Machine& machine, const std::string& name) {
  for (const std::string& file : machine.list("/etc/modprobe.d")) {
    const std::string content = "\n" + machine.read("/etc/modprobe.d/" + file).value_or("") + "\n";
    if (content.find("\nblacklist " + name + "\n") != std::string::npos ||
        content.find("\ninstall " + name + " ") != std::string::npos)
      return true;
  }
  return false;
}

Finding module(const Machine& machine) {
  Finding it{.name = "rdma_rxe"};
  switch (machine.module("rdma_rxe")) {
    case Module::kLoaded:
      it.text = "loaded";
      return it;
    case Module::kBuiltIn:
      it.text = "built into the kernel";
      return it;
    case Module::kOnDisk:
      it.state = State::kBad;
      if (machine.number("/proc/sys/kernel/modules_disabled") == 1) {
        it.text = "not loaded, and kernel.modules_disabled is 1: no module can be loaded before the next boot";
      } else if (is_blacklisted(machine, "rdma_rxe")) {
        it.text = "not loaded, and blacklisted in /etc/modprobe.d";
        it.mend = "grep -rn rdma_rxe /etc/modprobe.d   # remove that line, then sudo modprobe rdma_rxe";
      } else {
        it.text = "installed, not loaded";
        it.mend = "sudo modprobe rdma_rxe";
      }
      return it;
    case Module::kAbsent:
    case Module::kUnknown:
      break;
  }
  it.state = State::kBad;
  it.text = fmt::format("kernel {} lacks it; --nic vm boots a kernel that has it", machine.kernel());
  it.mend = package_of_rxe(machine);
  return it;
}

Finding namespaces(const Machine& machine) {
  const auto version = machine.kernel_version();
  if (version >= std::pair(7, 1)) return {.name = "rxe in namespaces", .text = "supported since Linux 7.1"};
  return {.name = "rxe in namespaces",
          .state = State::kNote,
          .text = fmt::format("supported since Linux 7.1, this is {}.{}: all hosts share one network namespace",
                              version.first, version.second)};
}

std::optional<Finding> sharing(const Machine& machine) {
  const auto mode = machine.read("/sys/module/ib_core/parameters/netns_mode");
  if (!mode) return std::nullopt;
  const bool shared = *mode == "Y" || *mode == "1";
  return Finding{
      .name = "RDMA netns mode",
      .text = shared ? "shared: every namespace sees every device" : "exclusive: a device is in one namespace"};
}

}  // namespace

std::vector<Finding> examine_rxe(const Machine& machine) {
  std::vector<Finding> findings = {module(machine), privilege(machine), verbs_providers(machine), namespaces(machine)};
  if (const auto it = sharing(machine)) findings.push_back(*it);
  return findings;
}

}  // namespace plugfest::doctor
