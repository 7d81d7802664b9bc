// Protection domains, memory regions and memory windows.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/objects.h"

// The header defines macros of these names; here the functions are defined.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace plugfest::roce::verbs {
namespace {

/// The address by which the NIC accesses `memory`. The CPU cannot access the memory of an emulated GPU at the address
/// that programs use, so the emulation provides another one.
void* accessible(void* memory) {
  using Accessible = const void* (*)(const void*);
  static const auto find = reinterpret_cast<Accessible>(::dlsym(RTLD_DEFAULT, "plugfest_cuda_accessible"));
  return find == nullptr ? memory : const_cast<void*>(find(memory));
}

ibv_mr* register_memory(ibv_pd* pd, void* memory, std::size_t size, std::uint64_t iova, unsigned access) noexcept {
  return pointer_or_errno([&]() -> ibv_mr* { return new Mr(pd_of(pd), memory, size, iova, access); }, "ibv_reg_mr");
}

std::uint64_t default_iova(void* memory, unsigned access) {
  return (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : reinterpret_cast<std::uintptr_t>(memory);
}

// Replaces what `changes` (ibv_rereg_mr_flags) names; the other parameters are ignored. The keys stay. Throws and
// changes nothing if the new region is not possible.
void reregister(Mr& region, unsigned changes, ibv_pd* pd, void* addr, std::size_t length, unsigned access) {
  if (changes == 0 || (changes & ~unsigned{IBV_REREG_MR_FLAGS_SUPPORTED}) != 0) fail(EINVAL);
  const bool moves = (changes & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  if ((changes & IBV_REREG_MR_CHANGE_PD) == 0) pd = region.pd;
  if ((changes & IBV_REREG_MR_CHANGE_ACCESS) == 0) access = region.engine.access();
  if (!moves) {
    addr = region.addr;
    length = region.length;
  }
  if (pd == nullptr || pd->context != region.context || region.mapping || (moves && (addr == nullptr || length == 0)))
    fail(EINVAL);
  Pd& domain = pd_of(pd);
  region.engine.change(domain.engine, accessible(addr), length,
                       moves ? default_iova(addr, access) : region.engine.iova(), access);
  region.pd_reference.emplace(domain.references);
  region.pd = pd;
  region.addr = addr;
  region.length = length;
}

// ibv_bind_mw (type 1) posts the work request that binds type 2, with the next R_Key.
int bind_memory_window(ibv_qp* qp, ibv_mw* mw, const ibv_mw_bind& binding) {
  ibv_send_wr request = {};
  request.wr_id = binding.wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = binding.send_flags;
  request.bind_mw.mw = mw;
  request.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  request.bind_mw.bind_info = binding.bind_info;
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp, &request, &bad);
  if (error == 0) mw->rkey = request.bind_mw.rkey;
  return error;
}

}  // namespace

Pd::Pd(Context& opened)
    : ibv_pd{},
      owner(opened),
      allocation(owner->device, limits::Kind::kProtectionDomain),
      engine(opened.nic->memory()) {
  context = &opened.context;
}

Mr::Mr(Pd& domain, void* memory, std::size_t size, std::uint64_t iova, unsigned access, std::optional<Mapping> mapped)
    : ibv_mr{},
      owner(*domain.owner),
      allocation(owner->device, limits::Kind::kMemoryRegion),
      pd_reference(domain.references),
      mapping(std::move(mapped)),
      engine(domain.engine, accessible(memory), size, iova, access) {
  context = domain.context;
  pd = &domain;
  addr = memory;
  length = size;
  lkey = engine.key();
  rkey = engine.key();
}

Mw::Mw(Pd& domain, ibv_mw_type kind)
    : ibv_mw{},
      owner(*domain.owner),
      allocation(owner->device, limits::Kind::kMemoryWindow),
      pd_reference(domain.references),
      engine(domain.engine, kind) {
  context = domain.context;
  pd = &domain;
  type = kind;
  rkey = engine.key();
}

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return pointer_or_errno([&]() -> ibv_pd* { return new Pd(context_of(context)); });
}

int ibv_dealloc_pd(ibv_pd* pd) { return destroy(pd_of(pd)); }

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  const auto flags = static_cast<unsigned>(access);
  return register_memory(pd, addr, length, default_iova(addr, flags), flags);
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
    auto* region = new Mr(pd_of(pd), start, length, iova, flags, std::move(mapping));
    region->addr = reinterpret_cast<void*>(offset);  // as in rdma-core
    return region;
  });
}

int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) {
  const int error = status_of([&] {
    reregister(mr_of(mr), static_cast<unsigned>(flags), pd, addr, length, static_cast<unsigned>(access));
    return 0;
  });
  if (error == 0) return 0;
  errno = error;
  return IBV_REREG_MR_ERR_INPUT;  // the region is as before
}

int ibv_dereg_mr(ibv_mr* mr) {
  return status_of([&] {
    Mr& region = mr_of(mr);
    if (region.engine.bound_windows() != 0) return EBUSY;
    delete &region;
    return 0;
  });
}

}  // extern "C"

void install_memory_windows(ibv_context_ops& ops) {
  ops.alloc_mw = [](ibv_pd* pd, ibv_mw_type type) {
    return pointer_or_errno([&]() -> ibv_mw* { return new Mw(pd_of(pd), type); });
  };
  ops.dealloc_mw = [](ibv_mw* mw) {
    return status_of([&] {
      delete &mw_of(mw);
      return 0;
    });
  };
  ops.bind_mw = [](ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* binding) {
    return status_of([&] { return bind_memory_window(qp, mw, *binding); });
  };
}

}  // namespace plugfest::roce::verbs
