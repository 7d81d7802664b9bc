// The NICs of this machine that the mesh plugin can use, and the hosts that it can connect.
#pragma once

#include <string>
#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"

namespace plugfest::doctor {

/// Compares all pairs of `hosts`: one finding for each pair, a warning if they share no subnet, or if its MTUs differ.
std::vector<Finding> examine_pairs(const std::vector<MeshHost>& hosts);

/// The NICs of this machine that the mesh plugin uses: active Ethernet ports with a RoCE v2 GID for an IP address.
MeshHost mesh_host(const Machine& machine);

}  // namespace plugfest::doctor
