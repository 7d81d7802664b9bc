// Virtual memory for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/nccl/cuda/physical_memory.h"
#include "harness/nccl/cuda/runtime.h"

namespace plugfest::nccl::cuda::testing_memory {

using Handle = unsigned long long;
using Address = unsigned long long;
inline constexpr std::size_t kBytes = 2 * kGranularity;
inline constexpr AllocationProperties kOnDevice0 = [] {
  AllocationProperties properties{};
  properties.type = 1;  // pinned
  properties.handle_types = kDescriptorHandle | kFabricHandle;
  properties.location = {kDeviceLocation, 0};
  return properties;
}();
inline constexpr AccessDescription kReadAndWrite = {{1, 0}, 3};

/// The driver reads the variables once, at its first call.
inline const bool kIsSet = [] {
  ::setenv(kVirtualMemoryVariable, "1", 1);
  ::setenv(kNvlinkDomainVariable, "1", 1);
  ::setenv("PLUGFEST_NCCL_DEVICES", "2", 1);
  return true;
}();

inline Handle create(std::size_t bytes = kBytes, int device = 0) {
  AllocationProperties properties = kOnDevice0;
  properties.location.id = device;
  Handle handle = 0;
  EXPECT_EQ(cuMemCreate(&handle, bytes, &properties, 0), kSuccess);
  return handle;
}

inline Address reserve(std::size_t bytes = kBytes, std::size_t alignment = 0) {
  Address address = 0;
  EXPECT_EQ(cuMemAddressReserve(&address, bytes, alignment, 0, 0), kSuccess);
  return address;
}

template <typename T = char>
T* at(Address address) {
  return reinterpret_cast<T*>(address);
}

/// Maps all of a handle at a new address, for reading and writing.
inline Address map(Handle handle, std::size_t bytes = kBytes) {
  const Address address = reserve(bytes);
  EXPECT_EQ(cuMemMap(address, bytes, 0, handle, 0), kSuccess);
  EXPECT_EQ(cuMemSetAccess(address, bytes, &kReadAndWrite, 1), kSuccess);
  return address;
}

inline void unmap(Address address, std::size_t bytes = kBytes) {
  EXPECT_EQ(cuMemUnmap(address, bytes), kSuccess);
  EXPECT_EQ(cuMemAddressFree(address, bytes), kSuccess);
}

inline int exported(Handle handle) {
  int descriptor = -1;
  EXPECT_EQ(cuMemExportToShareableHandle(&descriptor, handle, kDescriptorHandle, 0), kSuccess);
  return descriptor;
}

inline Handle imported(int descriptor) {
  Handle handle = 0;
  EXPECT_EQ(cuMemImportFromShareableHandle(&handle, at<void>(static_cast<Address>(descriptor)), kDescriptorHandle),
            kSuccess);
  return handle;
}

}  // namespace plugfest::nccl::cuda::testing_memory
