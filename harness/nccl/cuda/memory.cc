// Memory of the device and of the host: both are pages of this process.
#include "harness/nccl/cuda/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/system/file.h"
#include "fabric/system/number.h"
#include "harness/nccl/cuda/physical_memory.h"
#include "harness/nccl/cuda/refuse.h"
#include "harness/nccl/cuda/runtime.h"
#include "harness/nccl/cuda/virtual_memory.h"

namespace plugfest::nccl::cuda {
namespace {

// The memory size that cudaMemGetInfo returns.
constexpr std::size_t kDeviceBytes = std::size_t{80} << 30;
// Address space of device memory with two views. Only pages in use need memory.
constexpr std::size_t kViewBytes = std::size_t{64} << 30;
constexpr std::size_t kPage = 4096;

// Device memory with two views: a file that is mapped without access at the addresses of cudaMalloc, and with access
// elsewhere.
class SplitMemory {
 public:
  // Null unless the user asked for two views.
  static SplitMemory* instance() {
    static SplitMemory* const memory = [] {
      const char* const wanted = std::getenv(kDeviceMemoryVariable);
      return wanted != nullptr && std::string_view(wanted) == "split" ? new SplitMemory : nullptr;
    }();
    return memory;
  }

  // Null if no address space is left. The memory is zero.
  void* allocate(std::size_t bytes) {
    // The page behind an allocation stays free.
    const std::size_t size = round_up(bytes, kPage) + kPage;
    std::size_t begin = 0;
    for (const auto& [used, length] : used_) {
      if (used - begin >= size) break;
      begin = used + length;
    }
    if (kViewBytes - begin < size) return nullptr;
    used_[begin] = size;
    return reinterpret_cast<void*>(device_views.begin + begin);
  }

  bool release(const void* address) {
    const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(address) - device_views.begin;
    const auto found = used_.find(begin);
    if (found == used_.end()) return false;
    ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                static_cast<off_t>(found->second));
    used_.erase(found);
    return true;
  }

 private:
  SplitMemory() : file_(::memfd_create("device-memory", MFD_CLOEXEC)) {
    const auto map = [&](int protection) {
      void* const pages = ::mmap(nullptr, kViewBytes, protection, MAP_SHARED | MAP_NORESERVE, file_, 0);
      if (pages == MAP_FAILED)
        refuse(fmt::format("{} GiB of address space for device memory: {}", kViewBytes >> 30, std::strerror(errno)));
      return reinterpret_cast<std::uintptr_t>(pages);
    };
    if (file_ < 0 || ::ftruncate(file_, kViewBytes) != 0)
      refuse(fmt::format("a file for device memory: {}", std::strerror(errno)));
    device_views = {.begin = map(PROT_NONE), .bytes = kViewBytes, .second = map(PROT_READ | PROT_WRITE)};
    report_access_to_device_memory();
  }

  const int file_;
  std::map<std::size_t, std::size_t> used_;  // offsets and sizes
};

// The allocations, by address. Never destroyed, because threads may outlive main().
class Allocations {
 public:
  static Allocations& instance() {
    static auto* const allocations = new Allocations;
    return *allocations;
  }

  int allocate(void** address, std::size_t bytes, MemoryType type) {
    *address = nullptr;
    if (bytes == 0) return kSuccess;
    const bool on_device = type == MemoryType::kDevice;
    SplitMemory* const split = on_device ? SplitMemory::instance() : nullptr;
    // A file, so that the driver can export it as DMA-BUF.
    Descriptor file = on_device && has_virtual_memory() ? memory_file(round_up(bytes, kPage)) : Descriptor();
    int device = 0;
    ::cudaGetDevice(&device);
    const std::lock_guard lock(mutex_);
    void* pages = nullptr;
    if (split != nullptr) {
      pages = split->allocate(bytes);
    } else {
      const int kind = file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
      pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE, file.get(), 0);
      if (pages == MAP_FAILED) pages = nullptr;
    }
    if (pages == nullptr) return kMemoryAllocation;
    const auto begin = reinterpret_cast<std::uintptr_t>(pages);
    by_address_[begin] = {begin, bytes, type, device, file.get()};
    if (file) files_[begin] = std::move(file);
    *address = pages;
    return kSuccess;
  }

  int release(void* address) {
    if (address == nullptr) return kSuccess;
    const std::lock_guard lock(mutex_);
    const auto found = by_address_.find(reinterpret_cast<std::uintptr_t>(address));
    if (found == by_address_.end()) return kInvalidValue;
    if (SplitMemory* const split = SplitMemory::instance(); split == nullptr || !split->release(address))
      ::munmap(address, found->second.bytes);
    files_.erase(found->first);
    by_address_.erase(found);
    return kSuccess;
  }

  std::optional<Allocation> find(const void* address) {
    const auto value = reinterpret_cast<std::uintptr_t>(address);
    const std::lock_guard lock(mutex_);
    auto after = by_address_.upper_bound(value);
    if (after == by_address_.begin()) return {};
    --after;
    if (value - after->first >= after->second.bytes) return {};
    return after->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, Allocation> by_address_;
  std::map<std::uintptr_t, Descriptor> files_;  // of those that have one
};

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memmove(accessible(to), accessible(from), bytes);
}

}  // namespace

std::optional<Allocation> allocation_of(const void* address) {
  const std::optional<Allocation> found = Allocations::instance().find(address);
  return found ? found : mapping_of(address);
}

}  // namespace plugfest::nccl::cuda

using namespace plugfest::nccl::cuda;

extern "C" {

int cudaMalloc(void** address, std::size_t bytes) {
  return Allocations::instance().allocate(address, bytes, MemoryType::kDevice);
}

int cudaMallocManaged(void** address, std::size_t bytes, unsigned) {
  return Allocations::instance().allocate(address, bytes, MemoryType::kManaged);
}

int cudaMallocAsync(void** address, std::size_t bytes, void*) { return cudaMalloc(address, bytes); }

int cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = kDeviceBytes;
  return give(free, kDeviceBytes);
}

// The user-space NIC asks for the second address of memory that is registered with it.
const void* plugfest_cuda_accessible(const void* address) { return accessible(address); }

int cudaFree(void* address) {
  synchronize_all();
  return Allocations::instance().release(address);
}

int cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
  return Allocations::instance().allocate(address, bytes, MemoryType::kHost);
}

int cudaMallocHost(void** address, std::size_t bytes) { return cudaHostAlloc(address, bytes, 0); }

int cudaFreeHost(void* address) {
  synchronize_all();
  return Allocations::instance().release(address);
}

int cudaHostRegister(void*, std::size_t, unsigned) { return kSuccess; }
int cudaHostUnregister(void*) { return kSuccess; }
int cudaHostGetDevicePointer(void** device, void* host, unsigned) { return give(device, host); }

int cudaPointerGetAttributes(PointerAttributes* attributes, const void* address) {
  *attributes = {};
  const std::optional<Allocation> found = allocation_of(address);
  if (found) attributes->type = static_cast<int>(found->type);
  if (found) attributes->device = found->device;
  if (found) attributes->device_pointer = const_cast<void*>(address);
  if (!found || found->type != MemoryType::kDevice) attributes->host_pointer = const_cast<void*>(address);
  return kSuccess;
}

int cudaMemcpy(void* to, const void* from, std::size_t bytes, int) {
  synchronize_blocking();
  copy(to, from, bytes);
  return kSuccess;
}

int cudaMemset(void* to, int value, std::size_t bytes) {
  synchronize_blocking();
  std::memset(accessible(to), value, bytes);
  return kSuccess;
}

int cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int, void* stream) {
  // CUDA copies memory that is not from cudaHostAlloc before the call returns: the source may change then, and the
  // target has the data.
  if (!allocation_of(from)) {
    const auto* const begin = static_cast<const std::byte*>(from);
    return enqueue(
        stream, [to, bytes = std::vector<std::byte>(begin, begin + bytes)] { copy(to, bytes.data(), bytes.size()); });
  }
  const int code = enqueue(stream, [=] { copy(to, from, bytes); });
  if (code != kSuccess || allocation_of(to)) return code;
  return cudaStreamSynchronize(stream);
}

int cudaMemsetAsync(void* to, int value, std::size_t bytes, void* stream) {
  return enqueue(stream, [=] { std::memset(accessible(to), value, bytes); });
}

int cudaMemPoolCreate(void** pool, const void*) { return give(pool, new char); }

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
