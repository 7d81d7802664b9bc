// What the mesh plugin can use on this machine, and which hosts it can connect.
#pragma once

#include <string>
#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"

namespace plugfest::doctor {

/// Which pairs of `hosts` share a subnet: one finding for each pair. A warning if they share none, or if the MTUs in it
/// differ.
std::vector<Finding> examine_pairs(const std::vector<MeshHost>& hosts);

/// The NICs of this machine that the mesh plugin uses: active Ethernet ports with a RoCE v2 GID for an IP address.
MeshHost mesh_host(const Machine& machine);

}  // namespace plugfest::doctor
