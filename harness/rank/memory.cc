#include "harness/rank/memory.h"
#include "harness/rank/pattern.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "fabric/system/number.h"
#include "harness/rank/server.h"
#include "harness/wire/channel.h"

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

namespace {

[[noreturn]] void fail(const char* call) { throw std::system_error(errno, std::generic_category(), call); }

}  // namespace

Mapping execute(const Map& request) { return map_guarded(request.size, request.at_end); }

Nothing execute(const Unmap& request) {
  // A mapping without access reserves the address range.
  void* kept = mmap(pointer(request.address), request.size, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (kept == MAP_FAILED) fail("mmap");
  return {};
}

Nothing execute(const MapAgain& request) {
  void* fresh = mmap(pointer(request.address), request.size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (fresh == MAP_FAILED) fail("mmap");
  return {};
}

Nothing execute(const Free& request) {
  unmap_guarded(request);
  return {};
}

Nothing execute(const Protect& request) {
  if (mprotect(pointer(request.address), request.size, request.access) != 0) fail("mprotect");
  return {};
}

Nothing execute(const Fill& request) {
  fill_pattern(pointer(request.address), request.size, request.seed);
  return {};
}

Difference execute(const Check& request) {
  return compare_pattern(pointer(request.address), request.size, request.seed);
}

Nothing execute(const Set& request) {
  std::memset(pointer(request.address), request.value, request.size);
  return {};
}

Difference execute(const CheckSet& request) {
  return compare_byte(pointer(request.address), request.size, request.value);
}

Bytes execute(const Read& request) {
  if (request.size > kLargestBody / 2) throw std::length_error("that much memory does not fit into one answer");
  const auto* bytes = static_cast<const std::byte*>(pointer(request.address));
  return {{bytes, bytes + request.size}};
}

Nothing execute(const Write& request) {
  std::memcpy(pointer(request.address), request.bytes.data(), request.bytes.size());
  return {};
}

}  // namespace plugfest::rank
