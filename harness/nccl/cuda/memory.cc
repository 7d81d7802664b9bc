// Memory of the device and of the host: both are pages of this process.
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "harness/nccl/cuda/runtime.h"
#include "harness/nccl/cuda/stream.h"

namespace plugfest::nccl::cuda {
namespace {

enum class Kind { kHost = 1, kDevice = 2 };

/// The allocations, by address. Never destroyed, because threads may outlive main().
class Allocations {
 public:
  static Allocations& instance() {
    static auto* const allocations = new Allocations;
    return *allocations;
  }

  int allocate(void** address, std::size_t bytes, Kind kind) {
    *address = nullptr;
    if (bytes == 0) return kSuccess;
    void* const pages =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return kMemoryAllocation;
    const std::lock_guard lock(mutex_);
    by_address_[reinterpret_cast<std::uintptr_t>(pages)] = {bytes, kind};
    *address = pages;
    return kSuccess;
  }

  int release(void* address) {
    if (address == nullptr) return kSuccess;
    std::size_t bytes = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto found = by_address_.find(reinterpret_cast<std::uintptr_t>(address));
      if (found == by_address_.end()) return kInvalidValue;
      bytes = found->second.bytes;
      by_address_.erase(found);
    }
    ::munmap(address, bytes);
    return kSuccess;
  }

  /// The CUDA memory type of `address`: 0 for memory that is not from here.
  int type_of(const void* address) {
    const auto value = reinterpret_cast<std::uintptr_t>(address);
    const std::lock_guard lock(mutex_);
    auto after = by_address_.upper_bound(value);
    if (after == by_address_.begin()) return 0;
    --after;
    return value - after->first < after->second.bytes ? static_cast<int>(after->second.kind) : 0;
  }

 private:
  struct Allocation {
    std::size_t bytes;
    Kind kind;
  };
  std::mutex mutex_;
  std::map<std::uintptr_t, Allocation> by_address_;
};

}  // namespace
}  // namespace plugfest::nccl::cuda

using namespace plugfest::nccl::cuda;

extern "C" {

int cudaMalloc(void** address, std::size_t bytes) {
  return Allocations::instance().allocate(address, bytes, Kind::kDevice);
}

int cudaFree(void* address) {
  synchronize_all();
  return Allocations::instance().release(address);
}

int cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
  return Allocations::instance().allocate(address, bytes, Kind::kHost);
}

int cudaFreeHost(void* address) {
  synchronize_all();
  return Allocations::instance().release(address);
}

int cudaHostRegister(void*, std::size_t, unsigned) { return kSuccess; }

int cudaHostUnregister(void*) { return kSuccess; }

int cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return kSuccess;
}

int cudaPointerGetAttributes(PointerAttributes* attributes, const void* address) {
  *attributes = {};
  attributes->type = Allocations::instance().type_of(address);
  attributes->host_pointer = const_cast<void*>(address);
  if (attributes->type != 0) attributes->device_pointer = const_cast<void*>(address);
  return kSuccess;
}

int cudaMemcpy(void* to, const void* from, std::size_t bytes, int) {
  synchronize_blocking();
  std::memcpy(to, from, bytes);
  return kSuccess;
}

int cudaMemset(void* to, int value, std::size_t bytes) {
  synchronize_blocking();
  std::memset(to, value, bytes);
  return kSuccess;
}

int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int, void* stream) {
  // As CUDA does with memory that is not from cudaHostAlloc: the source may change after the call, and the target has
  // the data when the call returns.
  Allocations& allocations = Allocations::instance();
  if (allocations.type_of(from) == 0) {
    const auto* const begin = static_cast<const std::byte*>(from);
    return enqueue(stream, [to, copy = std::vector<std::byte>(begin, begin + bytes)] {
      std::memcpy(to, copy.data(), copy.size());
    });
  }
  const int code = enqueue(stream, [=] { std::memmove(to, from, bytes); });
  if (code != kSuccess || allocations.type_of(to) != 0) return code;
  return cudaStreamSynchronize(stream);
}

int cudaMemsetAsync(void* to, int value, std::size_t bytes, void* stream) {
  return enqueue(stream, [=] { std::memset(to, value, bytes); });
}

int cudaMemPoolCreate(void** pool, const void*) {
  *pool = new char;
  return kSuccess;
}

int cudaMemPoolDestroy(void* pool) {
  delete static_cast<char*>(pool);
  return kSuccess;
}

int cudaMemPoolSetAttribute(void*, int, void*) { return kSuccess; }

int cudaMallocFromPoolAsync(void** address, std::size_t bytes, void*, void*) { return cudaMalloc(address, bytes); }

int cudaFreeAsync(void* address, void* stream) {
  return enqueue(stream, [address] { Allocations::instance().release(address); });
}
}
