#include "fabric/roce/memory/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "fabric/system/memory_map.h"
#include "fabric/system/number.h"

namespace plugfest::roce {
namespace {

// Linux 5.14. Older kernels answer EINVAL, and then the maps decide.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

// Longer ranges may be sparse, and are not populated. Reading the maps takes longer than to populate so many pages.
constexpr std::size_t kMaxPopulated = 64 * 1024;

bool maps_allow(std::uintptr_t begin, std::uintptr_t end, bool write) {
  std::uintptr_t next = begin;
  const bool known = visit_own_mappings(begin, [&](const MemoryMapping& mapping) {
    if (mapping.begin > next || !mapping.readable || (write && !mapping.writable)) return false;
    next = mapping.end;
    return next < end;
  });
  return !known || next >= end;
}

}  // namespace

bool can_access(const void* address, std::size_t length, bool write) {
  if (length == 0) return true;
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t begin = first / page * page;
  if (length <= kMaxPopulated) {
    const std::size_t whole = round_up(first - begin + length, page);
    if (madvise(reinterpret_cast<void*>(begin), whole, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0)
      return true;
  }
  return maps_allow(begin, first + length, write);
}

}  // namespace plugfest::roce
