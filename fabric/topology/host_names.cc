#include "fabric/topology/host_names.h"

#include <fmt/format.h>

namespace plugfest::topology {
namespace {

std::string line(Ipv4Address address, const Host& host) { return fmt::format("{} {}\n", address.text(), host.name); }

Subnet subnet_of(const Interface& interface) {
  const std::uint32_t mask = interface.prefix_length == 0 ? 0 : ~std::uint32_t{0} << (32 - interface.prefix_length);
  return {{interface.address.value & mask}, interface.prefix_length};
}

}  // namespace

HostNames::HostNames(const Graph& graph, bool out_of_band) : out_of_band_(out_of_band) {
  for (std::size_t i = 0; out_of_band && i < graph.hosts.size(); ++i)
    all_ += line(out_of_band_address(i), graph.hosts[i]);
  for (const Host& host : graph.hosts) {
    for (const Interface& interface : host.interfaces) {
      subnets_[subnet_of(interface)].push_back({&host, &interface});
      all_ += line(interface.address, host);
    }
  }
}

std::string HostNames::seen_by(const Host& host) const {
  std::string lines;
  if (!host.interfaces.empty()) lines += line(host.interfaces[0].address, host);
  for (const Interface& interface : host.interfaces) {
    if (out_of_band_) break;
    for (const Member& member : subnets_.at(subnet_of(interface)))
      if (member.host != &host && member.interface != &member.host->interfaces[0])
        lines += line(member.interface->address, *member.host);
  }
  return lines + all_;
}

}  // namespace plugfest::topology
