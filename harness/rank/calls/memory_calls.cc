// Memory that rules allocate in this process.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "harness/rank/calls/dispatch.h"
#include "harness/rank/guard_pages.h"
#include "harness/rank/pointer.h"
#include "harness/rank/workloads/pattern.h"
#include "harness/wire/channel.h"

namespace plugfest::rank {

namespace {

[[noreturn]] void fail(const char* call) { throw std::system_error(errno, std::generic_category(), call); }

}  // namespace

Mapping execute(const Map& request) { return map_guarded(request.size, request.at_end); }

Nothing execute(const Unmap& request) {
  // A mapping without access keeps others out of the address range.
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
