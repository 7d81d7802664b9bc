// Mode mesh: the NICs, subnets and MTUs that determine which hosts the mesh plugin can connect.
#include "harness/doctor/examine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "harness/doctor/verbs_device.h"

namespace plugfest::doctor {
namespace {

bool has_gid_for_an_address(const VerbsPort& port) {
  return std::any_of(port.gids.begin(), port.gids.end(), [](const Gid& gid) {
    return gid.type == "RoCE v2" && !gid.text.starts_with("fe8") && !gid.text.starts_with("fe9") &&
           !gid.text.starts_with("fea") && !gid.text.starts_with("feb");
  });
}

std::string name_of(const VerbsDevice& device, const VerbsPort& port) {
  return device.ports.size() > 1 ? fmt::format("{}:{}", device.name, port.number) : device.name;
}

// Why the plugin does not use a port; empty if it does.
std::string refusal_of(const VerbsPort& port) {
  if (!port.is_ethernet()) return fmt::format("not used: its link layer is {}", port.link_layer);
  if (port.state != "ACTIVE") return fmt::format("not used: its port is {}", port.state);
  if (!has_gid_for_an_address(port))
    return fmt::format("not used: it has no RoCE v2 GID for an IP address, because {} has no address",
                       port.interface.empty() ? "its interface" : port.interface);
  return "";
}

// The plugin's variables that exclude NICs or their addresses, as the shell set them: "NCCL_MESH_HCA=mlx5_0".
std::vector<std::string> exclusions(const Machine& machine) {
  std::vector<std::string> set;
  std::istringstream environment(machine.read("/proc/self/environ").value_or(""));
  for (std::string variable; std::getline(environment, variable, '\0');) {
    for (const char* name : {"NCCL_MESH_HCA=", "NCCL_MESH_GID_INDEX="})
      if (variable.starts_with(name) && variable != name) set.push_back(variable);
  }
  return set;
}

struct Common {
  const MeshNic* one;
  const MeshNic* other;
  std::string subnet;
};

std::vector<Common> common_subnets(const MeshHost& one, const MeshHost& other) {
  std::vector<Common> common;
  for (const MeshNic& a : one.nics)
    for (const MeshNic& b : other.nics)
      for (const std::string& subnet : a.subnets)
        if (std::find(b.subnets.begin(), b.subnets.end(), subnet) != b.subnets.end())
          common.push_back({&a, &b, subnet});
  return common;
}

}  // namespace

MeshHost mesh_host(const Machine& machine) {
  MeshHost host;
  host.name = machine.read("/proc/sys/kernel/hostname").value_or("");
  const std::vector<ConnectedSubnet> connected = connected_subnets(machine);
  for (const VerbsDevice& device : verbs_devices(machine))
    for (const VerbsPort& port : device.ports) {
      if (!refusal_of(port).empty()) continue;
      MeshNic nic{.name = name_of(device, port), .path_mtu = roce_path_mtu(port.mtu_bytes), .subnets = {}};
      for (const auto& [interface, subnet] : connected)
        if (interface == port.interface &&
            std::find(nic.subnets.begin(), nic.subnets.end(), subnet) == nic.subnets.end())
          nic.subnets.push_back(subnet);
      host.nics.push_back(std::move(nic));
    }
  return host;
}

std::vector<Finding> examine_pairs(const std::vector<MeshHost>& hosts) {
  std::vector<Finding> findings;
  for (std::size_t i = 0; i < hosts.size(); ++i)
    for (std::size_t j = i + 1; j < hosts.size(); ++j) {
      const std::vector<Common> common = common_subnets(hosts[i], hosts[j]);
      std::vector<std::string> words;
      bool differ = false;
      for (const auto& [one, other, subnet] : common) {
        differ |= one->path_mtu != other->path_mtu;
        words.push_back(one->path_mtu == other->path_mtu
                            ? fmt::format("{} ({} to {}, path MTU {})", subnet, one->name, other->name, one->path_mtu)
                            : fmt::format("{} ({} with path MTU {}, {} with {})", subnet, one->name, one->path_mtu,
                                          other->name, other->path_mtu));
      }
      const std::string text = common.empty() ? "no common subnet: they connect only through a router"
                                              : fmt::format("on one subnet: {}{}", fmt::join(words, ", "),
                                                            differ ? "; give the interfaces one MTU" : "");
      findings.push_back({.name = fmt::format("{} and {}", hosts[i].name, hosts[j].name),
                          .state = common.empty() || differ ? State::kWarning : State::kGood,
                          .text = text});
    }
  return findings;
}

std::vector<Finding> examine_mesh(const Machine& machine) {
  std::vector<Finding> findings;
  const std::vector<VerbsDevice> devices = verbs_devices(machine);
  const MeshHost host = mesh_host(machine);
  for (const VerbsDevice& device : devices)
    for (const VerbsPort& port : device.ports) {
      const std::string name = name_of(device, port);
      if (const std::string refusal = refusal_of(port); !refusal.empty()) {
        findings.push_back(note(name, refusal));
        continue;
      }
      const auto nic =
          std::find_if(host.nics.begin(), host.nics.end(), [&](const MeshNic& other) { return other.name == name; });
      findings.push_back(good(name, nic->subnets.empty() ? "on no subnet: only routed peers are reached"
                                                         : fmt::format("on {}, path MTU {}",
                                                                       fmt::join(nic->subnets, ", "), nic->path_mtu)));
    }
  if (host.nics.empty())
    findings.push_back(bad("NICs", "none has an active Ethernet port and a RoCE v2 GID for an IP address",
                           machine.plugfest() + " doctor --for system"));
  for (std::size_t i = 0; i < host.nics.size(); ++i)
    for (std::size_t j = i + 1; j < host.nics.size(); ++j) {
      const std::vector<Common> common =
          common_subnets({.name = "", .nics = {host.nics[i]}}, {.name = "", .nics = {host.nics[j]}});
      if (common.empty()) continue;
      findings.push_back(
          note(host.nics[i].name + " and " + host.nics[j].name,
               fmt::format("share {}: the plugin uses the NIC that NCCL selects", common.front().subnet)));
    }
  for (const std::string& variable : exclusions(machine))
    findings.push_back(note("environment", variable + " is set: the plugin uses fewer NICs or addresses than these"));
  append(findings, mtu_mismatches(machine, devices));
  return findings;
}

}  // namespace plugfest::doctor
