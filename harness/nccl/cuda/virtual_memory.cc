// The driver's virtual memory management: reserved address space, and files mapped in it.
// Source: CUDA Driver API 13.0, section 6.14.
#include "harness/nccl/cuda/virtual_memory.h"
#include "harness/kernels/run/store_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "harness/nccl/cuda/multicast.h"
#include "harness/nccl/cuda/physical_memory.h"
#include "harness/nccl/cuda/runtime.h"

namespace plugfest::nccl::cuda {
namespace {

constexpr int kWithoutAccess = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

// Gives a range back to its reservation.
void unmap(std::uintptr_t begin, std::size_t bytes) {
  ::mmap(pointer(begin), bytes, PROT_NONE, kWithoutAccess | MAP_FIXED, -1, 0);
}

struct Mapped {
  std::size_t bytes = 0;
  std::shared_ptr<Physical> memory = {};
  std::size_t offset = 0;
  std::vector<AccessDescription> access = {};  // one for each location

  // The CPU stands for all devices, so it can do what any of them can.
  int protection() const {
    if (memory->multicast != nullptr) return PROT_NONE;
    int flags = 0;
    for (const AccessDescription& one : access) flags |= one.flags;
    return ((flags & 1) != 0 ? PROT_READ : 0) | ((flags & 2) != 0 ? PROT_WRITE : 0);
  }
};

// The element of a map by address that contains `address`; end() if there is none.
template <typename Map>
auto containing(Map& map, std::uintptr_t address) {
  auto after = map.upper_bound(address);
  if (after == map.begin()) return map.end();
  --after;
  return address - after->first < after->second.bytes ? after : map.end();
}

// Thread safety: any thread. Never destroyed, because threads may outlive main().
class Ranges {
 public:
  static Ranges& instance() {
    static auto* const ranges = new Ranges;
    return *ranges;
  }

  int reserve(unsigned long long* address, std::size_t bytes, std::size_t alignment) {
    alignment = std::max(alignment, kGranularity);
    if (bytes == 0 || bytes % kGranularity != 0 || alignment % kGranularity != 0) return kInvalidValue;
    if (bytes > std::numeric_limits<std::size_t>::max() - alignment) return kMemoryAllocation;
    const std::size_t all = bytes + alignment;
    void* const pages = ::mmap(nullptr, all, PROT_NONE, kWithoutAccess, -1, 0);
    if (pages == MAP_FAILED) return kMemoryAllocation;
    const auto first = reinterpret_cast<std::uintptr_t>(pages);
    const std::uintptr_t begin = (first + alignment - 1) / alignment * alignment;
    if (begin != first) ::munmap(pages, begin - first);
    if (begin + bytes != first + all) ::munmap(pointer(begin + bytes), first + all - begin - bytes);
    report_access_to_device_memory();
    const std::lock_guard lock(mutex_);
    reserved_[begin] = {bytes};
    return give(address, begin);
  }

  int free(std::uintptr_t begin, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = reserved_.find(begin);
    if (found == reserved_.end() || found->second.bytes != bytes || overlaps(begin, bytes)) return kInvalidValue;
    ::munmap(pointer(begin), bytes);
    reserved_.erase(found);
    return kSuccess;
  }

  int map(std::uintptr_t begin, std::size_t bytes, std::size_t offset, const std::shared_ptr<Physical>& memory) {
    if (bytes == 0 || (begin | bytes | offset) % kGranularity != 0 || offset > memory->bytes ||
        bytes > memory->bytes - offset)
      return kInvalidValue;
    const std::lock_guard lock(mutex_);
    const auto range = containing(reserved_, begin);
    if (range == reserved_.end() || bytes > range->first + range->second.bytes - begin || overlaps(begin, bytes))
      return kInvalidValue;
    if (memory->multicast == nullptr && ::mmap(pointer(begin), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                                               memory->file.get(), static_cast<off_t>(offset)) == MAP_FAILED)
      return kMemoryAllocation;
    if (memory->multicast == nullptr) kernels::shared_memory().add(pointer(begin), bytes);
    mapped_[begin] = {.bytes = bytes, .memory = memory, .offset = offset};
    return kSuccess;
  }

  // The range must consist of whole mappings, with or without gaps, because NCCL unmaps its flat range at the end.
  int unmap_all(std::uintptr_t begin, std::size_t bytes) {
    std::vector<std::shared_ptr<Physical>> last;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    const auto [first, end] = within(begin, bytes);
    if (first == end || cuts(begin, bytes)) return kInvalidValue;
    for (auto one = first; one != end; ++one) {
      if (one->second.memory->multicast == nullptr) {
        kernels::shared_memory().remove(pointer(one->first));
        unmap(one->first, one->second.bytes);
      }
      last.push_back(std::move(one->second.memory));
    }
    mapped_.erase(first, end);
    ++unmapped_;
    return kSuccess;
  }

  int set_access(std::uintptr_t begin, std::size_t bytes, const AccessDescription* descriptions, std::size_t count) {
    const std::lock_guard lock(mutex_);
    const auto [first, end] = within(begin, bytes);
    std::size_t covered = 0;
    for (auto one = first; one != end; ++one) covered += one->second.bytes;
    if (covered != bytes || bytes == 0) return kInvalidValue;
    for (auto one = first; one != end; ++one) {
      Mapped& mapping = one->second;
      for (std::size_t i = 0; i < count; ++i) {
        std::erase_if(mapping.access, [&](const auto& old) { return old.location == descriptions[i].location; });
        mapping.access.push_back(descriptions[i]);
      }
      if (::mprotect(pointer(one->first), mapping.bytes, mapping.protection()) != 0) return kMemoryAllocation;
    }
    return kSuccess;
  }

  // The mapping at an address, and where it begins; no memory: none.
  std::pair<std::uintptr_t, Mapped> find(std::uintptr_t address) {
    const std::lock_guard lock(mutex_);
    const auto found = containing(mapped_, address);
    return found == mapped_.end() ? std::pair(address, Mapped{}) : std::pair(found->first, found->second);
  }

  bool is_reserved(std::uintptr_t address) {
    const std::lock_guard lock(mutex_);
    return containing(reserved_, address) != reserved_.end();
  }

  // Changes with each unmapping. Never waits.
  std::uint64_t unmapped() const { return unmapped_.load(std::memory_order_acquire); }

 private:
  struct Reserved {
    std::size_t bytes;
  };
  using Mappings = std::map<std::uintptr_t, Mapped>;

  bool overlaps(std::uintptr_t begin, std::size_t bytes) {
    const auto next = mapped_.lower_bound(begin);
    return (next != mapped_.end() && next->first < begin + bytes) || containing(mapped_, begin) != mapped_.end();
  }

  // Whether only a part of a mapping is in the range.
  bool cuts(std::uintptr_t begin, std::size_t bytes) {
    const auto begins_before = [&](std::uintptr_t address) {
      const auto found = containing(mapped_, address);
      return found != mapped_.end() && found->first != address;
    };
    return begins_before(begin) || begins_before(begin + bytes);
  }

  // The mappings that begin in the range.
  std::pair<Mappings::iterator, Mappings::iterator> within(std::uintptr_t begin, std::size_t bytes) {
    return {mapped_.lower_bound(begin), mapped_.lower_bound(begin + bytes)};
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, Reserved> reserved_;
  Mappings mapped_;
  std::atomic<std::uint64_t> unmapped_ = 0;
};

// The last range of multicast addresses that the thread used.
struct LastMembers {
  std::uintptr_t begin = 0, end = 0;
  std::vector<std::byte*> addresses;
  const Multicast* object = nullptr;
  std::uint32_t version = 0;
  std::uint64_t unmapped = 0;
};

}  // namespace

std::optional<Allocation> mapping_of(const void* address) {
  if (!has_virtual_memory()) return {};
  const auto [begin, mapping] = Ranges::instance().find(reinterpret_cast<std::uintptr_t>(address));
  if (mapping.memory == nullptr || mapping.memory->multicast != nullptr) return {};
  const Location& location = mapping.memory->properties.location;
  const bool on_device = location.type == kDeviceLocation;
  return Allocation{.address = begin,
                    .bytes = mapping.bytes,
                    .type = on_device ? MemoryType::kDevice : MemoryType::kHost,
                    .device = on_device ? location.id : 0,
                    .file = mapping.memory->file.get(),
                    .file_offset = mapping.offset};
}

bool is_reserved(const void* address) {
  return has_virtual_memory() && Ranges::instance().is_reserved(reinterpret_cast<std::uintptr_t>(address));
}

std::string fault_of_reserved(const void* address) {
  const auto [begin, mapping] = Ranges::instance().find(reinterpret_cast<std::uintptr_t>(address));
  if (mapping.memory == nullptr) return "an access to an address range without memory";
  if (mapping.memory->multicast != nullptr)
    return "an ordinary instruction accessed a multicast address, which only multimem instructions can use";
  return mapping.access.empty() ? "an access to memory before cuMemSetAccess" : "a write to memory that is read-only";
}

}  // namespace plugfest::nccl::cuda

using namespace plugfest;
using namespace plugfest::nccl::cuda;

extern "C" {

int cuMemAddressReserve(unsigned long long* address, std::size_t bytes, std::size_t alignment, unsigned long long,
                        unsigned long long flags) {
  if (!has_virtual_memory()) return kNotSupported;
  return flags != 0 ? static_cast<int>(kInvalidValue) : Ranges::instance().reserve(address, bytes, alignment);
}

int cuMemAddressFree(unsigned long long address, std::size_t bytes) {
  return has_virtual_memory() ? Ranges::instance().free(address, bytes) : kNotSupported;
}

int cuMemMap(unsigned long long address, std::size_t bytes, std::size_t offset, unsigned long long handle,
             unsigned long long flags) {
  if (!has_virtual_memory()) return kNotSupported;
  const std::shared_ptr<Physical> memory = physical_of(handle);
  if (memory == nullptr || flags != 0) return kInvalidValue;
  return Ranges::instance().map(address, bytes, offset, memory);
}

int cuMemUnmap(unsigned long long address, std::size_t bytes) {
  return has_virtual_memory() ? Ranges::instance().unmap_all(address, bytes) : kNotSupported;
}

int cuMemSetAccess(unsigned long long address, std::size_t bytes, const AccessDescription* descriptions,
                   std::size_t count) {
  if (!has_virtual_memory()) return kNotSupported;
  return Ranges::instance().set_access(address, bytes, descriptions, count);
}

int cuMemRetainAllocationHandle(unsigned long long* handle, void* address) {
  if (!has_virtual_memory()) return kNotSupported;
  const std::shared_ptr<Physical> memory =
      Ranges::instance().find(reinterpret_cast<std::uintptr_t>(address)).second.memory;
  if (memory == nullptr) return kInvalidValue;
  retain(memory);
  return give(handle, memory->handle);
}

int cuMulticastBindAddr(unsigned long long handle, std::size_t at, unsigned long long address, std::size_t bytes,
                        unsigned long long flags) {
  if (!has_virtual_memory()) return kNotSupported;
  const auto [begin, mapping] = Ranges::instance().find(address);
  if (mapping.memory == nullptr) return kInvalidValue;
  return cuMulticastBindMem(handle, at, mapping.memory->handle, mapping.offset + (address - begin), bytes, flags);
}

int cuMemGetHandleForAddressRange(void* descriptor, unsigned long long address, std::size_t bytes, int type,
                                  unsigned long long) {
  if (!has_virtual_memory()) return kNotSupported;
  const std::optional<Allocation> found = allocation_of(pointer(address));
  if (type != kDmaBufHandle || bytes == 0 || !found || found->file < 0) return kInvalidValue;
  const std::size_t from = address - found->address;
  if (bytes > found->bytes - from) return kInvalidValue;
  const int opened = reopened(found->file, static_cast<off_t>(found->file_offset + from));
  return opened < 0 ? static_cast<int>(kMemoryAllocation) : give(static_cast<int*>(descriptor), opened);
}

int plugfest_cuda_multicast_members(const void* address, std::size_t bytes, void** members, int capacity) {
  thread_local LastMembers last;
  Ranges& ranges = Ranges::instance();
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto is_known = [&] {
    return at >= last.begin && at < last.end && last.unmapped == ranges.unmapped() &&
           last.version == last.object->version();
  };
  if (!is_known()) {
    last.end = 0;
    const std::uint64_t unmapped = ranges.unmapped();
    const auto [begin, mapping] = ranges.find(at);
    if (mapping.memory == nullptr || mapping.memory->multicast == nullptr) return 0;
    Multicast& object = *mapping.memory->multicast;
    Multicast::Members found = object.members_at(mapping.offset + (at - begin));
    if (found.end == 0) return -1;
    // Only the part of the range that is mapped here.
    const std::size_t first = std::max(found.begin, mapping.offset);
    for (std::byte*& one : found.addresses) one += first - found.begin;
    last = {.begin = begin + (first - mapping.offset),
            .end = begin + (std::min(found.end, mapping.offset + mapping.bytes) - mapping.offset),
            .addresses = std::move(found.addresses),
            .object = &object,
            .version = found.version,
            .unmapped = unmapped};
  }
  if (bytes > last.end - at || last.addresses.size() > static_cast<std::size_t>(capacity)) return -1;
  for (std::size_t i = 0; i < last.addresses.size(); ++i) members[i] = last.addresses[i] + (at - last.begin);
  return static_cast<int>(last.addresses.size());
}
}
