#include "harness/doctor/modes/subnet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>

namespace plugfest::doctor {
namespace {

struct Member {
  std::string device;
  std::string interface;
  long mtu_bytes = 0;
};

/// "10.0.0.0/24" from a line of /proc/net/route. Its addresses are hexadecimal, little-endian.
std::string subnet_text(std::uint32_t destination, std::uint32_t mask) {
  return fmt::format("{}.{}.{}.{}/{}", destination & 0xff, destination >> 8 & 0xff, destination >> 16 & 0xff,
                     destination >> 24, std::popcount(mask));
}

}  // namespace

std::vector<Finding> mtu_mismatches(const Machine& machine, const std::vector<VerbsDevice>& devices) {
  std::map<std::string, std::vector<Member>> subnets;
  std::istringstream lines(machine.read("/proc/net/route").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    char interface[32] = {};
    unsigned destination = 0, gateway = 0, flags = 0, mask = 0;
    if (std::sscanf(line.c_str(), "%31s %x %x %x %*d %*d %*d %x", interface, &destination, &gateway, &flags, &mask) !=
            5 ||
        gateway != 0 || mask == 0)
      continue;
    for (const VerbsDevice& device : devices)
      for (const VerbsPort& port : device.ports)
        if (port.interface == interface && port.mtu_bytes != 0)
          subnets[subnet_text(destination, mask)].push_back({device.name, port.interface, port.mtu_bytes});
  }
  std::vector<Finding> findings;
  for (const auto& [subnet, members] : subnets) {
    const auto [least, most] = std::minmax_element(
        members.begin(), members.end(), [](const Member& a, const Member& b) { return a.mtu_bytes < b.mtu_bytes; });
    if (least->mtu_bytes == most->mtu_bytes) continue;
    std::vector<std::string> words;
    for (const Member& member : members)
      words.push_back(fmt::format("{} ({}) {}", member.device, member.interface, member.mtu_bytes));
    findings.push_back(
        {.name = "MTU in " + subnet,
         .state = State::kWarning,
         .text = fmt::format("the MTUs differ, so that large packets are lost: {}", fmt::join(words, ", ")),
         .mend = fmt::format("sudo ip link set {} mtu {}", least->interface, most->mtu_bytes)});
  }
  return findings;
}

}  // namespace plugfest::doctor
