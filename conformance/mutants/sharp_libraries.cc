// Plugins that change one function of CollNet in libnccl-net-sharp.so. Unlike the mutants of the toy, which has no net,
// NCCL can use them. This source is compiled once for each, with the macro LIBRARY_<name>.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "harness/abi/coll_net.h"
#include "harness/abi/net.h"

namespace abi = plugfest::abi;

extern "C" {
__attribute__((visibility("default"))) extern abi::v11::Net ncclNetPlugin_v11;
__attribute__((visibility("default"))) extern abi::v11::CollNet ncclCollNetPlugin_v11;
abi::v11::Net ncclNetPlugin_v11;
abi::v11::CollNet ncclCollNetPlugin_v11;
}

namespace {

abi::v11::CollNet good;

#if defined LIBRARY_sharp_product_is_sum
// Reduces products as sums.
void mutate() {
  ncclCollNetPlugin_v11.iallreduce = [](void* comm, void* source, void* target, std::size_t count, int type, int op,
                                        void* from, void* to, void** request) {
    return good.iallreduce(comm, source, target, count, type, op == abi::kProd ? abi::kSum : op, from, to, request);
  };
}

#elif defined LIBRARY_sharp_exits_without_tree
// Ends the process if the switches refuse.
void mutate() {
  ncclCollNetPlugin_v11.connect = [](void** handles, int ranks, int rank, void* listener, void** comm) {
    const abi::Result result = good.connect(handles, ranks, rank, listener, comm);
    if (result != abi::Result::kSuccess) _Exit(1);
    return result;
  };
}
#endif

[[gnu::constructor]] void load_base() {
  Dl_info self;
  dladdr(&good, &self);
  const std::string own = self.dli_fname;
  const std::string file = own.substr(0, own.rfind('/') + 1) + "../libnccl-net-sharp.so";
  // It stays loaded.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "mutant: the base plugin: %s\n", dlerror());
    return;
  }
  ncclNetPlugin_v11 = *static_cast<abi::v11::Net*>(dlsym(library, "ncclNetPlugin_v11"));
  ncclCollNetPlugin_v11 = good = *static_cast<abi::v11::CollNet*>(dlsym(library, "ncclCollNetPlugin_v11"));
  mutate();
}

}  // namespace
