// The function table of each version of the net interface. A library exports them with MESH_EXPORT_NET.
#pragma once

#include <type_traits>

#include "harness/abi/downgrade.h"
#include "plugins/mesh/net.h"

namespace mesh {

namespace abi = plugfest::abi;
using abi::Result;

inline constexpr abi::newest::Net kNewest = {
    .name = net::kName,
    .init = net::init,
    .devices = net::devices,
    .getProperties = net::get_properties,
    .listen = net::listen,
    .connect = net::connect,
    .accept = net::accept,
    .regMr = net::reg_mr,
    .regMrDmaBuf = net::reg_mr_dma_buf,
    .deregMr = net::dereg_mr,
    .isend = net::isend,
    .irecv = net::irecv,
    .iflush = net::iflush,
    .test = net::test,
    .closeSend = net::close_send,
    .closeRecv = net::close_recv,
    .closeListen = net::close_listen,
    .getDeviceMr = nullptr,
    .irecvConsumed = net::irecv_consumed,
    .makeVDevice = net::make_vdevice,
    .finalize = net::finalize,
    .setNetAttr = net::set_net_attr,
};

/// Functions of the versions without contexts.
struct WithoutContext {
  static Result init(abi::Logger logger, abi::ProfilerCallback profiler) {
    return net::init_for_good(logger, profiler);
  }
  static void* context() { return nullptr; }
  static Result connect(int device, abi::newest::CommConfig* config, void* handle, void** send_comm,
                        abi::DeviceHandle** /*device_handle*/) {
    return net::connect_with(device, config, handle, send_comm);
  }
};

using Older = abi::Downgrade<kNewest, WithoutContext>;

/// The table of one version: `Net` is abi::v6::Net to abi::v12::Net.
template <typename Net>
constexpr Net exported() {
  Net net = Older::table<Net>();
  // If regIsGlobal is 1, NCCL 2.20 to 2.23, which load v8, send more than the receive can hold.
  if constexpr (std::is_same_v<Net, abi::v8::Net>) {
    net.getProperties = [](int device, abi::v8::Properties* properties) {
      const Result result = Older::table<Net>().getProperties(device, properties);
      if (result == Result::kSuccess) properties->regIsGlobal = 0;
      return result;
    };
  }
  return net;
}

}  // namespace mesh

/// Defines the symbol of one version, in a block of extern "C". The tables are not const, as in NCCL's declarations.
#define MESH_EXPORT_NET(api)                                                                 \
  [[gnu::visibility("default")]] constinit plugfest::abi::v##api::Net ncclNetPlugin_v##api = \
      mesh::exported<plugfest::abi::v##api::Net>();
