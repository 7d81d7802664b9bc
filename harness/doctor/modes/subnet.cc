#include "harness/doctor/modes/subnet.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

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

/// "fd00:1::/64" from the hexadecimal address in a line of /proc/net/if_inet6.
std::string subnet_text(const std::string& digits, unsigned prefix) {
  std::array<std::uint8_t, 16> bytes{};
  for (unsigned i = 0; i < bytes.size(); ++i) {
    const unsigned kept = prefix < 8 * i ? 0 : std::min(prefix - 8 * i, 8u);
    bytes[i] = static_cast<std::uint8_t>(std::stoul(digits.substr(2 * i, 2), nullptr, 16) & (0xff00u >> kept));
  }
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
  return fmt::format("{}/{}", text, prefix);
}

}  // namespace

std::vector<ConnectedSubnet> connected_subnets(const Machine& machine) {
  std::vector<ConnectedSubnet> subnets;
  std::istringstream routes(machine.read("/proc/net/route").value_or(""));
  for (std::string line; std::getline(routes, line);) {
    char interface[32] = {};
    unsigned destination = 0, gateway = 0, flags = 0, mask = 0;
    if (std::sscanf(line.c_str(), "%31s %x %x %x %*d %*d %*d %x", interface, &destination, &gateway, &flags, &mask) !=
            5 ||
        gateway != 0 || mask == 0)
      continue;
    subnets.push_back({interface, subnet_text(destination, mask)});
  }
  std::istringstream addresses(machine.read("/proc/net/if_inet6").value_or(""));
  for (std::string line; std::getline(addresses, line);) {
    char digits[33] = {}, interface[32] = {};
    unsigned prefix = 0, scope = 0;
    if (std::sscanf(line.c_str(), "%32[0-9a-f] %*x %x %x %*x %31s", digits, &prefix, &scope, interface) != 4 ||
        std::string_view(digits).size() != 32 || prefix > 128 || scope != 0)
      continue;
    subnets.push_back({interface, subnet_text(digits, prefix)});
  }
  return subnets;
}

std::vector<Finding> mtu_mismatches(const Machine& machine, const std::vector<VerbsDevice>& devices) {
  std::map<std::string, std::vector<Member>> subnets;
  for (const ConnectedSubnet& connected : connected_subnets(machine))
    for (const VerbsDevice& device : devices)
      for (const VerbsPort& port : device.ports)
        if (port.interface == connected.interface && port.mtu_bytes != 0)
          subnets[connected.subnet].push_back({device.name, port.interface, port.mtu_bytes});
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
