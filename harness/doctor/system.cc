// Mode system: the machine's RDMA devices.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "harness/doctor/examine.h"
#include "harness/doctor/finding.h"
#include "harness/doctor/verbs_device.h"

namespace plugfest::doctor {
namespace {

std::string name_of(const VerbsDevice& device, const VerbsPort& port) {
  return fmt::format("{} port {}", device.name, port.number);
}

/// The model of devices in the sysfs view of an emulated host.
constexpr std::string_view kOwnModel = "plugfest-roce";

Finding device_itself(const Machine& machine, const VerbsDevice& device) {
  Finding it{.name = device.name};
  it.text = fmt::format("{}{}{}", device.driver.empty() ? "software" : device.driver,
                        device.model.empty() ? "" : ", " + device.model,
                        device.firmware.empty() ? "" : ", firmware " + device.firmware);
  if (device.model == kOwnModel) {
    it.text += ": NIC in user space, which programs use through its libibverbs";
    return it;
  }
  const std::string node = "/dev/infiniband/" + device.node;
  if (device.node.empty() || !machine.exists(node)) {
    it.state = State::kBad;
    it.text += "; programs cannot open it, because the module ib_uverbs is not loaded";
    it.fix = "sudo modprobe ib_uverbs";
  } else if (!machine.may_open(node)) {
    it.state = State::kBad;
    it.text += fmt::format("; this user may not open {}", node);
    it.fix = fmt::format("sudo chmod 666 {}", node);
  }
  return it;
}

Finding port_itself(const VerbsDevice& device, const VerbsPort& port) {
  Finding it{.name = name_of(device, port)};
  it.text = fmt::format("{}, {}, {}", port.state, port.link_layer, port.rate);
  if (port.is_ethernet() && port.mtu_bytes != 0)
    it.text +=
        fmt::format(", {} with MTU {}: path MTU {}", port.interface, port.mtu_bytes, roce_path_mtu(port.mtu_bytes));
  if (port.state == "ACTIVE") {
    if (port.is_ethernet() && port.mtu_bytes != 0 && roce_path_mtu(port.mtu_bytes) < 4096) {
      it.state = State::kNote;
      it.fix = fmt::format("sudo ip link set {} mtu 9000   # on every host and switch of that network", port.interface);
    }
    return it;
  }
  it.state = State::kWarning;
  if (port.is_ethernet() && port.physical_state == "Disabled" && !port.interface.empty()) {
    it.fix = fmt::format("sudo ip link set {} up", port.interface);
  } else if (!port.is_ethernet() && port.state == "INIT") {
    it.text += ": no subnet manager has configured it";
    it.fix = "sudo systemctl start opensm   # on one host of the network";
  } else {
    it.text += fmt::format(" (physical state {}): check the cable and the peer's port",
                           port.physical_state.empty() ? "unknown" : port.physical_state);
  }
  return it;
}

/// The GID index for RoCE v2 over IPv4.
Finding gids(const VerbsDevice& device, const VerbsPort& port) {
  std::vector<std::string> found;
  int first = -1;
  for (const Gid& gid : port.gids) {
    if (gid.type != "RoCE v2" || gid.ipv4().empty()) continue;
    if (first < 0) first = gid.index;
    found.push_back(fmt::format("{} ({}, {})", gid.index, gid.ipv4(), gid.interface));
  }
  Finding it{.name = name_of(device, port) + " GIDs"};
  if (first < 0) {
    it.state = State::kWarning;
    it.text = fmt::format("none of {} is RoCE v2 over IPv4: {} has no IPv4 address", port.gids.size(),
                          port.interface.empty() ? "the interface" : port.interface);
    if (!port.interface.empty()) it.fix = fmt::format("sudo ip address add ADDRESS/24 dev {}", port.interface);
    return it;
  }
  it.text = fmt::format("RoCE v2 over IPv4 is index {}; NCCL_IB_GID_INDEX={}, ib_write_bw -x {}",
                        fmt::join(found, ", "), first, first);
  return it;
}

Finding locked_memory(const Machine& machine) {
  constexpr std::uint64_t kLittle = std::uint64_t{64} << 20;
  const Limit limit = machine.limit("Max locked memory");
  Finding it{.name = "locked memory"};
  if (!limit.soft || *limit.soft >= kLittle || machine.has_net_admin()) {
    it.text = !limit.soft ? "unlimited"
                          : fmt::format("{} KiB{}", *limit.soft / 1024,
                                        *limit.soft < kLittle ? ", a limit that root may exceed" : "");
    return it;
  }
  it.state = State::kWarning;
  it.text = fmt::format("{} KiB: registering more memory fails with ENOMEM", *limit.soft / 1024);
  it.fix = !limit.hard
               ? "ulimit -l unlimited"
               : "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/rdma.conf   # then log in again";
  return it;
}

}  // namespace

std::vector<Finding> examine_system(const Machine& machine) {
  const std::vector<VerbsDevice> devices = verbs_devices(machine);
  if (devices.empty()) {
    return {{.name = "RDMA devices",
             .state = State::kBad,
             .text = "none in /sys/class/infiniband: the machine has none, or the driver is not loaded",
             .fix = "lspci -d ::0207; lspci -d ::0200   # RDMA adapters"}};
  }
  std::vector<Finding> findings;
  bool active = false;
  for (const VerbsDevice& device : devices) {
    findings.push_back(device_itself(machine, device));
    for (const VerbsPort& port : device.ports) {
      active |= port.state == "ACTIVE";
      findings.push_back(port_itself(device, port));
      if (port.is_ethernet()) findings.push_back(gids(device, port));
      for (Finding& it : examine_losses(machine, device, port)) findings.push_back(std::move(it));
    }
  }
  if (!active) findings.push_back({.name = "ports", .state = State::kBad, .text = "no port is active"});
  for (Finding& it : mtu_mismatches(machine, devices)) findings.push_back(std::move(it));
  findings.push_back(verbs_providers(machine));
  findings.push_back(locked_memory(machine));
  return findings;
}

}  // namespace plugfest::doctor
