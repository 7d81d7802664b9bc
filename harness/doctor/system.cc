// Mode system: the machine's RDMA devices.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/doctor/examine.h"
#include "harness/doctor/finding.h"
#include "harness/doctor/verbs_device.h"

namespace plugfest::doctor {
namespace {

// The model of devices in the sysfs view of an emulated host.
constexpr std::string_view kOwnModel = "plugfest-roce";

Finding device_itself(const Machine& machine, const VerbsDevice& device) {
  const std::string text = fmt::format("{}{}{}", device.driver.empty() ? "software" : device.driver,
                                       device.model.empty() ? "" : ", " + device.model,
                                       device.firmware.empty() ? "" : ", firmware " + device.firmware);
  if (device.model == kOwnModel)
    return good(device.name, text + ": user-space NIC, which programs use through its libibverbs");
  const std::string node = "/dev/infiniband/" + device.node;
  if (device.node.empty() || !machine.exists(node))
    return bad(device.name, text + "; programs cannot open it, because the module ib_uverbs is not loaded",
               "sudo modprobe ib_uverbs");
  if (!machine.may_open(node))
    return bad(device.name, fmt::format("{}; this user may not open {}", text, node), "sudo chmod 666 " + node);
  return good(device.name, text);
}

Finding port_itself(const VerbsDevice& device, const VerbsPort& port) {
  Finding finding{.name = port_name(device, port)};
  finding.text = fmt::format("{}, {}, {}", port.state, port.link_layer, port.rate);
  if (port.is_ethernet() && port.mtu_bytes != 0)
    finding.text +=
        fmt::format(", {} with MTU {}: path MTU {}", port.interface, port.mtu_bytes, roce_path_mtu(port.mtu_bytes));
  if (port.state == "ACTIVE") {
    if (port.is_ethernet() && port.mtu_bytes != 0 && roce_path_mtu(port.mtu_bytes) < 4096) {
      finding.state = State::kNote;
      finding.fix =
          fmt::format("sudo ip link set {} mtu 9000   # on every host and switch of that network", port.interface);
    }
    return finding;
  }
  finding.state = State::kWarning;
  if (port.is_ethernet() && port.physical_state == "Disabled" && !port.interface.empty()) {
    finding.fix = fmt::format("sudo ip link set {} up", port.interface);
  } else if (!port.is_ethernet() && port.state == "INIT") {
    finding.text += ": no subnet manager has configured it";
    finding.fix = "sudo systemctl start opensm   # on one host of the network";
  } else {
    finding.text += fmt::format(" (physical state {}): check the cable and the peer's port",
                                port.physical_state.empty() ? "unknown" : port.physical_state);
  }
  return finding;
}

// The GID index for RoCE v2 over IPv4.
Finding gids(const VerbsDevice& device, const VerbsPort& port) {
  std::vector<std::string> found;
  int first = -1;
  for (const Gid& gid : port.gids) {
    if (gid.type != "RoCE v2" || gid.ipv4().empty()) continue;
    if (first < 0) first = gid.index;
    found.push_back(fmt::format("{} ({}, {})", gid.index, gid.ipv4(), gid.interface));
  }
  const std::string name = port_name(device, port) + " GIDs";
  if (first < 0)
    return warning(name,
                   fmt::format("none of {} is RoCE v2 over IPv4: {} has no IPv4 address", port.gids.size(),
                               port.interface.empty() ? "the interface" : port.interface),
                   port.interface.empty() ? "" : fmt::format("sudo ip address add ADDRESS/24 dev {}", port.interface));
  return good(name, fmt::format("RoCE v2 over IPv4 is index {}; NCCL_IB_GID_INDEX={}, ib_write_bw -x {}",
                                fmt::join(found, ", "), first, first));
}

Finding locked_memory(const Machine& machine) {
  constexpr std::uint64_t kLittle = std::uint64_t{64} << 20;
  const std::string name = "locked memory";
  const Limit limit = machine.limit("Max locked memory");
  if (!limit.soft) return good(name, "unlimited");
  const std::string text = fmt::format("{} KiB", *limit.soft / 1024);
  if (*limit.soft >= kLittle) return good(name, text);
  if (machine.has_net_admin()) return good(name, text + ", a limit that root may exceed");
  return warning(name, text + ": registering more memory fails with ENOMEM",
                 !limit.hard
                     ? "ulimit -l unlimited"
                     : "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/rdma.conf   # then log in "
                       "again");
}

}  // namespace

std::vector<Finding> examine_system(const Machine& machine) {
  const std::vector<VerbsDevice> devices = verbs_devices(machine);
  if (devices.empty())
    return {bad("RDMA devices", "none in /sys/class/infiniband: the machine has none, or the driver is not loaded",
                "lspci -d ::0207; lspci -d ::0200   # RDMA adapters")};
  std::vector<Finding> findings;
  bool active = false;
  for (const VerbsDevice& device : devices) {
    findings.push_back(device_itself(machine, device));
    for (const VerbsPort& port : device.ports) {
      active |= port.state == "ACTIVE";
      findings.push_back(port_itself(device, port));
      if (port.is_ethernet()) findings.push_back(gids(device, port));
      append(findings, examine_losses(machine, device, port));
    }
  }
  if (!active) findings.push_back(bad("ports", "no port is active"));
  append(findings, mtu_mismatches(machine, devices));
  findings.push_back(verbs_providers(machine));
  findings.push_back(locked_memory(machine));
  return findings;
}

}  // namespace plugfest::doctor
