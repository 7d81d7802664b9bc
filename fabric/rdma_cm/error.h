// Errors of the kernel's commands.
#pragma once

#include <cerrno>

#include "fabric/system/file.h"

namespace plugfest::rdma_cm {

/// Throws std::system_error with the errno value with which the kernel refuses the command.
[[noreturn]] inline void fail(int error) { throw_errno("execute a command of the RDMA connection manager", error); }

}  // namespace plugfest::rdma_cm
