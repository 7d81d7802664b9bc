// The library of the mutants of RMA v16 and GIN v13, whose base plugin is libnccl-net-mesh.so in the parent folder. It
// also exports the net of that plugin.
#include <dlfcn.h>

#include "conformance/mutants/calls_table.h"
#include "harness/abi/net.h"

namespace plugfest::mutants {
namespace {

abi::newest::Net net_of_base() {
  void* const base = dlopen(base_of(plugin::InterfaceKind::kRma).c_str(), RTLD_NOW | RTLD_LOCAL);  // it stays loaded
  const void* const net = base == nullptr ? nullptr : dlsym(base, "ncclNetPlugin_v12");
  return net == nullptr ? abi::newest::Net() : *static_cast<const abi::newest::Net*>(net);
}

}  // namespace
}  // namespace plugfest::mutants

using RmaTable = plugfest::mutants::Table<plugfest::plugin::InterfaceKind::kRma, 16, 21>;
using GinTable = plugfest::mutants::Table<plugfest::plugin::InterfaceKind::kGin, 13, 20>;
PLUGFEST_EXPORT plugfest::abi::newest::Net ncclNetPlugin_v12;
PLUGFEST_EXPORT RmaTable ncclRmaPlugin_v16;
PLUGFEST_EXPORT GinTable ncclGinPlugin_v13;
plugfest::abi::newest::Net ncclNetPlugin_v12 = plugfest::mutants::net_of_base();
RmaTable ncclRmaPlugin_v16;
GinTable ncclGinPlugin_v13;
