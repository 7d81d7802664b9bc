// Mutants that use the NIC in a wrong way: the mesh plugin with another function of libibverbs. Each library depends on
// the mesh plugin. The loader searches the library first, so the plugin calls its function.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include "harness/abi/net.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// A symbol of the libraries after this one.
template <typename Symbol>
Symbol* next(const char* name) {
  return reinterpret_cast<Symbol*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

EXPORT plugfest::abi::v12::Net ncclNetPlugin_v12;
plugfest::abi::v12::Net ncclNetPlugin_v12 = *next<plugfest::abi::v12::Net>("ncclNetPlugin_v12");

// A queue pair number has 24 bits. The NIC gets 16 bits of the peer's, as if the handle had no room for more.
EXPORT int ibv_modify_qp(ibv_qp* queue_pair, ibv_qp_attr* attributes, int mask) {
  static auto* const modify = next<decltype(ibv_modify_qp)>("ibv_modify_qp");
  ibv_qp_attr cut = *attributes;
  if ((mask & IBV_QP_DEST_QPN) != 0) cut.dest_qp_num &= 0xffff;
  return modify(queue_pair, &cut, mask);
}
