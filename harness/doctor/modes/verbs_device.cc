#include "harness/doctor/modes/verbs_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace plugfest::doctor {
namespace {

/// "4: ACTIVE" without the number.
std::string word_after_number(const std::string& text) {
  const std::size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

bool is_empty(const std::string& gid) { return gid.find_first_not_of("0:") == std::string::npos; }

std::vector<Gid> gids_of(const Machine& machine, const std::string& folder) {
  std::vector<Gid> gids;
  for (const std::string& entry : machine.list(folder + "/gids")) {
    Gid gid;
    gid.index = std::atoi(entry.c_str());
    gid.text = machine.read(folder + "/gids/" + entry).value_or("");
    if (is_empty(gid.text) || gid.text.starts_with("fe80:0000:0000:0000:0000:0000:0000:0000")) continue;
    gid.type = machine.read(folder + "/gid_attrs/types/" + entry).value_or("");
    gid.interface = machine.read(folder + "/gid_attrs/ndevs/" + entry).value_or("");
    gids.push_back(gid);
  }
  std::sort(gids.begin(), gids.end(), [](const Gid& a, const Gid& b) { return a.index < b.index; });
  return gids;
}

/// The network interface of a device without GIDs.
std::string interface_below(const Machine& machine, const std::string& device) {
  const auto names = machine.list("/sys/class/infiniband/" + device + "/device/net");
  return names.empty() ? "" : names.front();
}

VerbsPort port_of(const Machine& machine, const std::string& device, const std::string& number) {
  const std::string folder = "/sys/class/infiniband/" + device + "/ports/" + number;
  const auto text = [&](const char* file) { return machine.read(folder + "/" + file).value_or(""); };
  VerbsPort port;
  port.number = std::atoi(number.c_str());
  port.state = word_after_number(text("state"));
  port.physical_state = word_after_number(text("phys_state"));
  port.link_layer = text("link_layer");
  port.rate = text("rate");
  port.gids = gids_of(machine, folder);
  if (port.is_ethernet()) {
    port.interface = port.gids.empty() ? interface_below(machine, device) : port.gids.front().interface;
    port.mtu_bytes = machine.number("/sys/class/net/" + port.interface + "/mtu").value_or(0);
  }
  for (const std::string& name : machine.list(folder + "/hw_counters"))
    if (const auto value = machine.number(folder + "/hw_counters/" + name)) port.counters[name] = *value;
  return port;
}

}  // namespace

std::string Gid::ipv4() const {
  constexpr std::string_view kMapped = "0000:0000:0000:0000:0000:ffff:";
  unsigned high = 0, low = 0;
  if (!text.starts_with(kMapped) || std::sscanf(text.c_str() + kMapped.size(), "%4x:%4x", &high, &low) != 2) return "";
  return fmt::format("{}.{}.{}.{}", high >> 8, high & 0xff, low >> 8, low & 0xff);
}

std::vector<VerbsDevice> verbs_devices(const Machine& machine) {
  std::vector<VerbsDevice> devices;
  for (const std::string& name : machine.list("/sys/class/infiniband")) {
    const std::string folder = "/sys/class/infiniband/" + name;
    VerbsDevice device;
    device.name = name;
    device.driver = machine.link_target(folder + "/device/driver");
    device.firmware = machine.read(folder + "/fw_ver").value_or("");
    device.model = machine.read(folder + "/hca_type").value_or("");
    for (const std::string& node : machine.list("/sys/class/infiniband_verbs"))
      if (machine.read("/sys/class/infiniband_verbs/" + node + "/ibdev") == name) device.node = node;
    for (const std::string& number : machine.list(folder + "/ports"))
      device.ports.push_back(port_of(machine, name, number));
    devices.push_back(std::move(device));
  }
  return devices;
}

int roce_path_mtu(long interface_mtu_bytes) {
  constexpr long kHeaders = 96;
  for (const int mtu : {4096, 2048, 1024, 512})
    if (interface_mtu_bytes - kHeaders >= mtu) return mtu;
  return 256;
}

}  // namespace plugfest::doctor
