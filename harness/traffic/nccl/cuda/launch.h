// Launches of kernels.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace plugfest::nccl::cuda {

/// What runs the kernels. `function`: the address of the kernel's host function. `arguments`: the bytes of its one
/// parameter. Runs on the thread of the stream and returns when the kernel has ended.
using Kernels = std::function<void(const void* function, std::span<const std::byte> arguments)>;

/// Sets what runs the kernels. Call it before the first launch.
void set_kernels(Kernels kernels);

}  // namespace plugfest::nccl::cuda
