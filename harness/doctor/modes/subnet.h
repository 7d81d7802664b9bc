// The subnets of network interfaces. A port loses frames that are larger than its MTU, so the MTUs in one subnet must
// be equal.
#pragma once

#include <string>
#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"
#include "harness/doctor/modes/verbs_device.h"

namespace plugfest::doctor {

/// A subnet that an interface is connected to, without a router.
struct ConnectedSubnet {
  std::string interface;
  std::string subnet;  ///< "10.0.0.0/24", "fd00:1::/64"
};

/// IPv4 subnets from /proc/net/route, then IPv6 subnets from /proc/net/if_inet6 without link-local ones.
std::vector<ConnectedSubnet> connected_subnets(const Machine& machine);

/// A warning for each subnet whose ports have different MTUs.
std::vector<Finding> mtu_mismatches(const Machine& machine, const std::vector<VerbsDevice>& devices);

}  // namespace plugfest::doctor
