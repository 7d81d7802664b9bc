// The examination of each mode.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"

namespace plugfest::doctor {

std::vector<Finding> examine_fabric(const Machine& machine);
std::vector<Finding> examine_loopback(const Machine& machine);
std::vector<Finding> examine_rxe(const Machine& machine);
std::vector<Finding> examine_vm(const Machine& machine);
std::vector<Finding> examine_system(const Machine& machine);
std::vector<Finding> examine_mesh(const Machine& machine);
std::vector<Finding> examine_nccl(const Machine& machine);
std::vector<Finding> examine_tools(const Machine& machine);

}  // namespace plugfest::doctor
