// Flow control and packet loss of a port's network. The driver's settings of priority flow control are read over
// netlink (IEEE 802.1Qaz, linux/dcbnl.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"
#include "harness/doctor/verbs_device.h"

namespace plugfest::doctor {

/// Settings of flow control and congestion marking, and counters of lost and late packets. Empty if the driver reports
/// neither.
std::vector<Finding> examine_losses(const Machine& machine, const VerbsDevice& device, const VerbsPort& port);

/// One bit for each of the eight priorities: set if the priority is paused instead of dropped. std::nullopt if the
/// driver does not report it. Needs no privilege.
std::optional<std::uint8_t> paused_priorities(const std::string& interface);

/// Parses the attributes of the kernel's answer. Accepts any bytes.
std::optional<std::uint8_t> paused_priorities(std::span<const std::byte> attributes);

}  // namespace plugfest::doctor
