// Memory of rules in this process.
#include <sys/mman.h>

#include <cerrno>
#include <system_error>

#include "harness/rank/calls/dispatch.h"
#include "harness/rank/guarded.h"

namespace plugfest::rank {

namespace {

void* memory(std::uint64_t address) { return reinterpret_cast<void*>(address); }

[[noreturn]] void fail(const char* call) { throw std::system_error(errno, std::generic_category(), call); }

}  // namespace

Mapping map(const Map& request) { return map_guarded(request.size, request.at_end); }

void unmap(const Range& request) {
  // The address range stays reserved by a mapping without access, or others might move in.
  void* kept = mmap(memory(request.address), request.size, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (kept == MAP_FAILED) fail("mmap");
}

void map_again(const Range& request) {
  void* fresh = mmap(memory(request.address), request.size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (fresh == MAP_FAILED) fail("mmap");
}

void free_mapping(const Range& pages) { unmap_guarded(pages); }

void protect(const Protect& request) {
  if (mprotect(memory(request.address), request.size, request.access) != 0) fail("mprotect");
}

}  // namespace plugfest::rank
