// Flow control and packet loss of a port's network.
#pragma once

#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"
#include "harness/doctor/modes/verbs_device.h"

namespace plugfest::doctor {

/// Settings of flow control and congestion marking, and counters of lost and late packets. Empty if the driver shows
/// neither.
std::vector<Finding> examine_losses(const Machine& machine, const VerbsDevice& device, const VerbsPort& port);

}  // namespace plugfest::doctor
