// Compares the MTUs of ports in one IPv4 subnet. A port loses frames that are larger than its MTU.
#pragma once

#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"
#include "harness/doctor/modes/verbs_device.h"

namespace plugfest::doctor {

/// A warning for each subnet of /proc/net/route whose ports have different MTUs.
std::vector<Finding> mtu_mismatches(const Machine& machine, const std::vector<VerbsDevice>& devices);

}  // namespace plugfest::doctor
