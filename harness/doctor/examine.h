// Examines all modes of a machine.
#pragma once

#include <string>
#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"

namespace plugfest::doctor {

/// The mode of `plugfest run` without --nic.
inline constexpr const char* kDefaultMode = "fabric";

/// The mode of `plugfest doctor --plugin mesh`.
inline constexpr const char* kMeshMode = "mesh";

/// Names of all modes, as for --for, in the order of the report.
std::vector<std::string> mode_names();

/// Examines the modes `wanted`; all modes if `wanted` is empty. Changes nothing on the machine. Takes a few seconds at
/// most. `peers`: other hosts; mode mesh compares all pairs with each other and with this machine.
/// Errors: std::runtime_error for an unknown mode.
Diagnosis examine(const Machine& machine, const std::vector<std::string>& wanted,
                  const std::vector<MeshHost>& peers = {});

}  // namespace plugfest::doctor
