// Runs one launch of an NCCL kernel.
#pragma once

#include <cstddef>
#include <span>

#include "harness/traffic/nccl/device/functions.h"

namespace plugfest::nccl::device {

/// Runs the work that `arguments`, a kernel's parameter, describes, and returns when it is done or NCCL's abort flag is
/// set. Work that cannot be done here ends the process: see refuse(). Thread safety: kernels of different
/// communicators may run at the same time.
void run_kernel(const FunctionTable& functions, std::span<const std::byte> arguments);

}  // namespace plugfest::nccl::device
