// Commands that install what is missing, by distribution.
#pragma once

#include <string>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"

namespace plugfest::doctor {

/// A field of /etc/os-release without its quotes: "debian" for "ID". Empty if the field does not exist.
std::string os_release(const Machine& machine, const std::string& field);

/// "sudo apt-get install tshark"; empty if the machine has no apt-get. `package`: Debian's name.
std::string install(const Machine& machine, const std::string& package);

/// Whether libibverbs has user-space drivers for the kernel's devices.
Finding verbs_providers(const Machine& machine);

/// Installs rdma_rxe, or a kernel that has it; empty if no package is known for this distribution.
std::string package_of_rxe(const Machine& machine);

}  // namespace plugfest::doctor
