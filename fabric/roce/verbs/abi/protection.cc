// Protection domains and memory regions.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/objects.h"

// The header's macros choose between the functions behind them; here these are defined.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace plugfest::roce::verbs {

Domain::Domain(Context& opened)
    : ibv_pd{}, owner(opened), of_device(owner->device, limits::Kind::kProtectionDomain), engine(*opened.nic) {
  context = &opened.context;
}

Region::Region(Domain& domain, void* memory, std::size_t size, std::uint64_t iova, unsigned access,
               std::optional<Mapping> mapped)
    : ibv_mr{},
      owner(*domain.owner),
      of_device(owner->device, limits::Kind::kMemoryRegion),
      of_domain(domain.users),
      mapping(std::move(mapped)),
      engine(domain.engine, memory, size, iova, access) {
  context = domain.context;
  pd = &domain;
  addr = memory;
  length = size;
  lkey = engine.key();
  rkey = engine.key();
}

namespace {

ibv_mr* register_memory(ibv_pd* pd, void* memory, std::size_t size, std::uint64_t iova, unsigned access) noexcept {
  return pointer_or_errno([&]() -> ibv_mr* { return new Region(domain_of(pd), memory, size, iova, access); });
}

std::uint64_t usual_iova(void* memory, unsigned access) {
  return (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : reinterpret_cast<std::uintptr_t>(memory);
}

}  // namespace

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return pointer_or_errno([&]() -> ibv_pd* { return new Domain(context_of(context)); });
}

int ibv_dealloc_pd(ibv_pd* pd) {
  Domain& domain = domain_of(pd);
  if (domain.users != 0) return EBUSY;
  delete &domain;
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  const auto flags = static_cast<unsigned>(access);
  return register_memory(pd, addr, length, usual_iova(addr, flags), flags);
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  return register_memory(pd, addr, length, iova, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned int access) {
  return register_memory(pd, addr, length, iova, access);
}

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  return pointer_or_errno([&]() -> ibv_mr* {
    const auto flags = static_cast<unsigned>(access);
    Mapping mapping(fd, offset, length, (flags & IBV_ACCESS_LOCAL_WRITE) != 0);
    void* const start = mapping.start();
    auto* region = new Region(domain_of(pd), start, length, iova, flags, std::move(mapping));
    region->addr = reinterpret_cast<void*>(offset);  // as rdma-core has it
    return region;
  });
}

int ibv_dereg_mr(ibv_mr* mr) {
  return status_of([&] {
    Region& region = region_of(mr);
    if (region.engine.bound_windows() != 0) return EBUSY;
    delete &region;
    return 0;
  });
}

}  // extern "C"
}  // namespace plugfest::roce::verbs
