#include "harness/rank/guard_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "fabric/system/round.h"

namespace plugfest::rank {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

Mapping map_guarded(std::size_t size, bool at_end) {
  const std::size_t page = page_size();
  const std::size_t pages = std::max(round_up(size, page), page);
  void* whole = mmap(nullptr, pages + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (whole == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  const auto start = reinterpret_cast<std::uint64_t>(whole) + page;
  if (mprotect(reinterpret_cast<void*>(start), pages, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    munmap(whole, pages + 2 * page);
    throw std::system_error(error, std::generic_category(), "mprotect");
  }
  return {at_end ? start + pages - size : start, start, pages};
}

void unmap_guarded(Range pages) {
  const std::size_t page = page_size();
  munmap(reinterpret_cast<void*>(pages.address - page), pages.size + 2 * page);
}

void unmap_guarded(const Mapping& mapping) { unmap_guarded(Range{mapping.pages_address, mapping.pages_size}); }

}  // namespace plugfest::rank
