// Device memory has two addresses if PLUGFEST_NCCL_DEVICE_MEMORY is "split": that of cudaMalloc, which the CPU cannot
// access, and that of a second mapping, by which the stand-ins and the NIC access it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plugfest::nccl::cuda {

struct DeviceViews {
  std::uintptr_t begin = 0;  ///< of the addresses that cudaMalloc returns
  std::size_t bytes = 0;     ///< 0: device memory has one address
  std::uintptr_t second = 0;
};

/// Set before the first allocation of device memory, and never changed.
extern DeviceViews device_views;

/// The address by which the stand-ins access the memory at `address`, which may be any memory.
template <class T>
T* accessible(T* address) {
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(address) - device_views.begin;
  return offset < device_views.bytes ? reinterpret_cast<T*>(device_views.second + offset) : address;
}

}  // namespace plugfest::nccl::cuda
