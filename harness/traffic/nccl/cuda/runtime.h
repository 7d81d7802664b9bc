// The stand-ins for the CUDA runtime, with NVIDIA's names: streams and events that order work, on host memory.
// Source: the CUDA runtime API, 13.0. Thread safety: that of CUDA.
#pragma once

#include <span>
#include <type_traits>

#include "harness/traffic/nccl/cuda/abi.h"

extern "C" {
#define FUNCTION(name, ...) std::type_identity_t<__VA_ARGS__> name;
#include "harness/traffic/nccl/cuda/driver.def"
#include "harness/traffic/nccl/cuda/functions.def"
#undef FUNCTION
/// The address by which the CPU can access memory at `address`, which may be any memory: see view.h.
const void* plugfest_cuda_accessible(const void* address);
}

namespace plugfest::nccl::cuda {

inline constexpr const char* kDeviceName = "Plugfest";

struct StandIn {
  const char* name;
  const void* function;
};

/// All stand-ins for the CUDA runtime.
std::span<const StandIn> stand_ins();

/// Address of the stand-in for a function of the CUDA driver: a trap for one without; null for some by whose absence
/// NCCL recognises what the driver lacks.
void* driver_stand_in(const char* name);

/// How many devices a process has: PLUGFEST_NCCL_DEVICES, 1 without it.
int device_count();

}  // namespace plugfest::nccl::cuda
