// Types and constants of the CUDA runtime and driver interfaces, as far as NCCL uses them.
//
// Handles are opaque pointers and enumerations are ints, as calls pass them. `signatures_test.cc` compares all
// signatures with NVIDIA's headers where a CUDA toolkit is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plugfest::nccl::cuda {

/// cudaError_t and CUresult: the values that both have in common, and those that the stand-ins return.
enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kMemoryAllocation = 2,
  kInvalidDevice = 101,
  kPeerAccessUnsupported = 217,
  kInvalidResourceHandle = 400,
  kNotReady = 600,
  kNotSupported = 801,
};

/// Stores the result of a stand-in that cannot fail.
template <typename T, typename Value>
int give(T* target, Value value) {
  *target = static_cast<T>(value);
  return kSuccess;
}

struct Dim3 {
  unsigned x, y, z;
};

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  void* stream;
  void* attributes;
  unsigned attribute_count;
};

/// cudaFuncAttributes: the part that NCCL reads.
struct FunctionAttributes {
  std::size_t shared_bytes;
  std::size_t const_bytes;
  std::size_t local_bytes;
  int threads_per_block;
  int registers;
  int ptx_version;
  int binary_version;
  int cache_mode;
  int dynamic_shared_bytes;
};

/// cudaPointerAttributes.
struct PointerAttributes {
  int type;  ///< 0 unregistered, 1 host, 2 device, 3 managed
  int device;
  void* device_pointer;
  void* host_pointer;
  long reserved[8];
};

/// CUmemLocation: type 1 is a device, 2 to 4 are the host.
struct Location {
  int type;
  int id;
  bool operator==(const Location&) const = default;
};
inline constexpr int kDeviceLocation = 1;

/// CUmemAllocationProp.
struct AllocationProperties {
  int type;
  int handle_types;
  Location location;
  void* windows_attributes;
  unsigned char compression;
  unsigned char gpu_direct_rdma;
  unsigned short usage;
  unsigned char reserved[4];
};

/// CUmemAccessDesc. Flags: 0 none, 1 read, 3 read and write.
struct AccessDescription {
  Location location;
  int flags;
};

/// CUmulticastObjectProp.
struct MulticastProperties {
  unsigned devices;
  std::size_t bytes;  ///< that each device can bind
  unsigned long long handle_types;
  unsigned long long flags;
};

/// CUmemAllocationHandleType: a descriptor, or 64 bytes that are valid in all hosts of an NVLink domain.
inline constexpr int kDescriptorHandle = 1, kFabricHandle = 8;
/// CUmemRangeHandleType: a DMA-BUF.
inline constexpr int kDmaBufHandle = 1;

/// Offsets in cudaDeviceProp. Source: CUDA 13.0. CUDA 12 has two members more, which move those after `major`.
inline constexpr std::size_t kPropertiesBytes = 1008, kTotalMemoryAt = 288, kWarpSizeAt = 308, kThreadsPerBlockAt = 320,
                             kMajorAt = 360, kMultiprocessorsAt = 384, kPciBusAt = 568;
/// CUDA 12.0, cudaGetDeviceProperties_v2.
inline constexpr std::size_t kPropertiesBytes12 = 1032, kMultiprocessorsAt12 = 388, kPciBusAt12 = 584;

/// What `extra` of cuLaunchKernelEx contains before each value.
inline constexpr std::uintptr_t kParameterBuffer = 1;
inline constexpr std::uintptr_t kParameterBufferSize = 2;

}  // namespace plugfest::nccl::cuda
