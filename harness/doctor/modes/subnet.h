// Ports of one IPv4 subnet must have one MTU, or the larger frames of one are lost at the other.
#pragma once

#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"
#include "harness/doctor/modes/verbs_device.h"

namespace plugfest::doctor {

/// A warning for each subnet, by /proc/net/route, whose ports differ.
std::vector<Finding> mtu_mismatches(const Machine& machine, const std::vector<VerbsDevice>& devices);

}  // namespace plugfest::doctor
