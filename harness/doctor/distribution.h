// Where this distribution keeps what is missing, as commands to type.
#pragma once

#include <string>

#include "harness/doctor/finding.h"
#include "harness/doctor/machine.h"

namespace plugfest::doctor {

/// A field of /etc/os-release without its quotes: "ID" is "debian". Empty if there is none.
std::string os_release(const Machine& machine, const std::string& field);

/// "sudo apt-get install tshark"; empty where the distribution does not use apt. `package`: Debian's name.
std::string install(const Machine& machine, const std::string& package);

/// Whether libibverbs has drivers in user space for the kernel's devices.
Finding verbs_providers(const Machine& machine);

/// How to come by a kernel with rdma_rxe; empty where that is not known.
std::string package_of_rxe(const Machine& machine);

}  // namespace plugfest::doctor
