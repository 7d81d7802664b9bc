// The library of the mutants of RMA v16, GIN v13 and GIN v11, whose base plugin is libnccl-net-mesh.so in the parent
// folder. It also exports the net of that plugin: NCCL 2.28.9 takes net v11 and GIN v11.
#include <dlfcn.h>

#include <utility>

#include "conformance/mutants/calls_table.h"
#include "harness/abi/net.h"

namespace plugfest::mutants {
namespace {

// Replaces init by a function that notes the call.
template <typename Net, typename... Parameters>
void watch_init(Net& net, abi::Result (*Net::*init)(Parameters...)) {
  static abi::Result (*init_of_base)(Parameters...) = nullptr;
  init_of_base = std::exchange(net.*init, [](Parameters... parameters) {
    net_is_initialized = true;
    return init_of_base(parameters...);
  });
}

template <typename Net>
Net net_of_base(const char* symbol) {
  void* const base = dlopen(base_of(plugin::InterfaceKind::kRma).c_str(), RTLD_NOW | RTLD_LOCAL);  // it stays loaded
  const void* const found = base == nullptr ? nullptr : dlsym(base, symbol);
  if (found == nullptr) return {};
  Net net = *static_cast<const Net*>(found);
  watch_init(net, &Net::init);
  return net;
}

}  // namespace
}  // namespace plugfest::mutants

namespace mutants = plugfest::mutants;
using Kind = plugfest::plugin::InterfaceKind;
using NetV11 = plugfest::abi::v11::Net;
using NetV12 = plugfest::abi::v12::Net;
using RmaV16 = mutants::Table<Kind::kRma, 16, 21>;
using GinV13 = mutants::Table<Kind::kGin, 13, 20>;
using GinV11 = mutants::Table<Kind::kGin, 11, 18>;
PLUGFEST_EXPORT NetV11 ncclNetPlugin_v11;
PLUGFEST_EXPORT NetV12 ncclNetPlugin_v12;
PLUGFEST_EXPORT RmaV16 ncclRmaPlugin_v16;
PLUGFEST_EXPORT GinV13 ncclGinPlugin_v13;
PLUGFEST_EXPORT GinV11 ncclGinPlugin_v11;
NetV11 ncclNetPlugin_v11 = mutants::net_of_base<NetV11>("ncclNetPlugin_v11");
NetV12 ncclNetPlugin_v12 = mutants::net_of_base<NetV12>("ncclNetPlugin_v12");
RmaV16 ncclRmaPlugin_v16;
GinV13 ncclGinPlugin_v13;
GinV11 ncclGinPlugin_v11;
