// All modes of a machine.
#pragma once

#include <string>
#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"

namespace plugfest::doctor {

/// The name of what plugfest run does unless told otherwise.
inline constexpr const char* kDefaultMode = "fabric";

/// Names as --for takes them, in the order of the report.
std::vector<std::string> mode_names();

/// Looks at what the modes `wanted` need, or at everything if that is empty. Changes nothing on the machine, takes a
/// few seconds at most. Errors: std::runtime_error for a name that is no mode's.
Diagnosis examine(const Machine& machine, const std::vector<std::string>& wanted);

}  // namespace plugfest::doctor
