// Memory windows.
#include <infiniband/verbs.h>

#include <cerrno>

#include "fabric/roce/verbs/abi/abi_edge.h"
#include "fabric/roce/verbs/abi/objects.h"

namespace plugfest::roce::verbs {

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

namespace {

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
