// The stand-ins for the CUDA runtime, with NVIDIA's names: streams and events that order work, on host memory.
// Source: the CUDA runtime API, 13.0. Thread safety: the same as CUDA's.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <type_traits>

#include "harness/nccl/cuda/abi.h"

extern "C" {
#define FUNCTION(name, ...) std::type_identity_t<__VA_ARGS__> name;
#include "harness/nccl/cuda/driver.def"
#include "harness/nccl/cuda/functions.def"
#undef FUNCTION
/// The address by which the CPU can access memory at `address`, which may be any memory: see memory.h.
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

/// Address of the stand-in for a function of the CUDA driver; a trap if there is no stand-in. Null for
/// cuMulticastCreate, from whose absence NCCL concludes that the driver lacks multicast.
void* driver_stand_in(const char* name);

/// The number of devices of a process: PLUGFEST_NCCL_DEVICES; 1 if it is not set.
int device_count();

// Streams: queues of work, each with a thread that does it in order.

/// Appends `work` to a stream; null is the legacy default stream. Returns a cudaError_t.
int enqueue(void* stream, std::function<void()> work);

/// Waits until a stream has done all work that was in it at the call, at most for `limit`; false if it has not.
bool wait_for_stream(void* stream, std::chrono::milliseconds limit);

/// Waits until all streams are idle.
void synchronize_all();

/// Waits for the streams that the default stream waits for: itself, and those created without cudaStreamNonBlocking.
void synchronize_blocking();

// Launches of kernels.

/// The function that runs the kernels. `function`: the address of the kernel's host function. `arguments`: the bytes of
/// its one parameter. Runs on the thread of the stream and returns when the kernel has ended.
using Kernels = std::function<void(const void* function, std::span<const std::byte> arguments)>;

/// Sets the function that runs the kernels. Call it before the first launch.
void set_kernels(Kernels kernels);

}  // namespace plugfest::nccl::cuda

namespace plugfest::nccl {

/// Returns a function that, when called, prints "NAME: no stand-in for this function of CUDA" and exits: see refuse().
/// It exists until the process ends. Null on an architecture whose machine code is unknown. Thread safety: any thread.
void* make_trap(const std::string& name);

}  // namespace plugfest::nccl
