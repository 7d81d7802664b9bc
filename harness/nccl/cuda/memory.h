// The allocations of the stand-ins, and the two views of device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace plugfest::nccl::cuda {

/// Environment variable: "split" gives device memory two views, see below.
inline constexpr const char* kDeviceMemoryVariable = "PLUGFEST_NCCL_DEVICE_MEMORY";

/// The numbers are as in CUmemorytype and cudaMemoryType.
enum class MemoryType { kHost = 1, kDevice = 2, kManaged = 3 };

struct Allocation {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  MemoryType type = MemoryType::kHost;
  int device = 0;
  int file = -1;  ///< descriptor of the file that contains the memory, if processes or NICs can share it
  std::size_t file_offset = 0;
};

/// The allocation that `address` is in; nothing for memory that is not from the stand-ins. Thread safety: any thread.
std::optional<Allocation> allocation_of(const void* address);

// Device memory has two addresses if PLUGFEST_NCCL_DEVICE_MEMORY is "split": cudaMalloc's, which the CPU cannot access,
// and the address of a second mapping, by which the stand-ins and the NIC access it.

struct DeviceViews {
  std::uintptr_t begin = 0;  ///< of the addresses that cudaMalloc returns
  std::size_t bytes = 0;     ///< 0: device memory has one address
  std::uintptr_t second = 0;
};

/// It is set before the first allocation of device memory, and never changed.
extern DeviceViews device_views;

/// The address by which the stand-ins access the memory at `address`, which may be any memory.
template <typename T>
T* accessible(T* address) {
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(address) - device_views.begin;
  return offset < device_views.bytes ? reinterpret_cast<T*>(device_views.second + offset) : address;
}

// Accesses to device memory by the CPU.

/// First words of the line about an access to device memory by the CPU.
inline constexpr const char* kFault = "plugfest-nccl fault: ";
/// Exit code of a process that has made such an access.
inline constexpr int kFaultCode = 1;

/// Makes an access to device memory without a mapping for the CPU, or to an address of cuMemAddressReserve, end the
/// process, with a line that names the function and the address. The previous handler handles other faults. Thread
/// safety: any thread.
void report_access_to_device_memory();

}  // namespace plugfest::nccl::cuda
