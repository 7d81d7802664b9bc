// The allocations of the stand-ins, and the two views of device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace plugfest::nccl::cuda {

/// Environment variable: "split" gives device memory two views, see view.h.
inline constexpr const char* kDeviceMemoryVariable = "PLUGFEST_NCCL_DEVICE_MEMORY";

/// As CUmemorytype and cudaMemoryType number them.
enum class MemoryType { kHost = 1, kDevice = 2, kManaged = 3 };

struct Allocation {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  MemoryType type = MemoryType::kHost;
};

/// The allocation that `address` is in; nothing for memory that is not from the stand-ins. Thread safety: any thread.
std::optional<Allocation> allocation_of(const void* address);

}  // namespace plugfest::nccl::cuda
