// Whether the network under a port is set up to lose nothing, and whether it has lost something.
#pragma once

#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"
#include "harness/doctor/modes/verbs_device.h"

namespace plugfest::doctor {

/// What can be read of flow control and congestion marking, and counters that only grow when packets were lost or late;
/// nothing for a port that tells neither.
std::vector<Finding> examine_losses(const Machine& machine, const VerbsDevice& device, const VerbsPort& port);

}  // namespace plugfest::doctor
