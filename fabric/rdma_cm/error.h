// Errors of the kernel's commands.
#pragma once

#include <cerrno>
#include <system_error>

namespace plugfest::rdma_cm {

/// Throws std::system_error with an errno value. `call`: the system call that failed; the default means that the
/// command is invalid.
[[noreturn]] inline void fail(int error, const char* call = "rdma_cm") {
  throw std::system_error(error, std::generic_category(), call);
}

}  // namespace plugfest::rdma_cm
