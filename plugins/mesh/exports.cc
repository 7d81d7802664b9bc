// The symbols that NCCL looks for: one table per version. The newest is implemented; the older ones differ in what they
// pass along, and sizes were int up to v8.
#include <array>

#include "harness/abi/net_v10.h"
#include "harness/abi/net_v11.h"
#include "harness/abi/net_v12.h"
#include "harness/abi/net_v6.h"
#include "harness/abi/net_v7.h"
#include "harness/abi/net_v8.h"
#include "harness/abi/net_v9.h"
#include "plugins/mesh/net.h"
#include "plugins/mesh/transfer/slots.h"

namespace mesh {
namespace {

namespace abi = plugfest::abi;
using abi::DeviceHandle;
using abi::Result;

// --- properties: the fields that a version has ---

template <class Properties>
Result get_properties(int device, Properties* properties) noexcept {
  abi::v12::Properties all;
  if (properties == nullptr) return net::get_properties(device, nullptr);
  const Result result = net::get_properties(device, &all);
  if (result != Result::kSuccess) return result;
  Properties& out = *properties;
  out.name = all.name;
  out.pciPath = all.pciPath;
  out.guid = all.guid;
  out.ptrSupport = all.ptrSupport;
  out.speed = all.speed;
  out.port = all.port;
  out.latency = all.latency;
  out.maxComms = all.maxComms;
  out.maxRecvs = all.maxRecvs;
  if constexpr (requires { out.netDeviceType; }) {
    out.netDeviceType = all.netDeviceType;
    out.netDeviceVersion = all.netDeviceVersion;
  }
  if constexpr (requires { out.regIsGlobal; }) out.regIsGlobal = all.regIsGlobal;
  if constexpr (requires { out.vProps; }) {
    out.forceFlush = all.forceFlush;
    out.vProps = {};
    out.vProps.ndevs = all.vProps.ndevs;
    out.vProps.devs[0] = all.vProps.devs[0];
    out.maxP2pBytes = all.maxP2pBytes;
    out.maxCollBytes = all.maxCollBytes;
  }
  if constexpr (requires { out.maxMultiRequestSize; }) out.maxMultiRequestSize = all.maxMultiRequestSize;
  return result;
}

// --- without a context: v6 to v10 ---

Result init_v6(abi::Logger logger) noexcept { return net::init_for_good(logger); }

Result init_v10(abi::Logger logger, abi::ProfilerCallback /*profiler*/) noexcept { return net::init_for_good(logger); }

Result listen_v6(int device, void* handle, void** listen_comm) noexcept {
  return net::listen(nullptr, device, handle, listen_comm);
}

Result connect_v6(int device, void* handle, void** send_comm) noexcept {
  return net::connect_with(device, nullptr, handle, send_comm);
}

Result connect_v7(int device, void* handle, void** send_comm, DeviceHandle** /*device_comm*/) noexcept {
  return net::connect_with(device, nullptr, handle, send_comm);
}

Result connect_v10(int device, abi::v10::CommConfig* config, void* handle, void** send_comm,
                   DeviceHandle** /*device_comm*/) noexcept {
  return net::connect_with(device, config, handle, send_comm);
}

Result accept_v6(void* listen_comm, void** recv_comm) noexcept { return net::accept(listen_comm, recv_comm, nullptr); }

// --- sizes of int: v6 to v8 ---

// A negative size becomes one that no registration covers.
std::size_t widened(int size) { return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(size)); }

Result reg_mr_v6(void* comm, void* data, int size, int type, void** memory) noexcept {
  return net::reg_mr(comm, data, widened(size), type, memory);
}

Result isend_v6(void* send_comm, void* data, int size, int tag, void* memory, void** request) noexcept {
  return net::isend(send_comm, data, widened(size), tag, memory, nullptr, request);
}

Result irecv_v6(void* recv_comm, int count, void** data, int* sizes, int* tags, void** memory,
                void** request) noexcept {
  std::array<std::size_t, kMaxGroup> wide = {};
  for (int i = 0; i < count && i < kMaxGroup; ++i) wide[static_cast<std::size_t>(i)] = widened(sizes[i]);
  return net::irecv(recv_comm, count, data, wide.data(), tags, memory, nullptr, request);
}

// --- without profiler handles: v9 ---

Result isend_v9(void* send_comm, void* data, std::size_t size, int tag, void* memory, void** request) noexcept {
  return net::isend(send_comm, data, size, tag, memory, nullptr, request);
}

Result irecv_v9(void* recv_comm, int count, void** data, std::size_t* sizes, int* tags, void** memory,
                void** request) noexcept {
  return net::irecv(recv_comm, count, data, sizes, tags, memory, nullptr, request);
}

// --- tables ---

/// What all versions share, by the members' names.
template <class Net>
constexpr Net common_members() {
  Net net = {};
  net.name = net::kName;
  net.devices = net::devices;
  net.regMrDmaBuf = nullptr;
  net.deregMr = net::dereg_mr;
  net.iflush = net::iflush;
  net.test = net::test;
  net.closeSend = net::close_send;
  net.closeRecv = net::close_recv;
  net.closeListen = net::close_listen;
  if constexpr (requires { net.irecvConsumed; }) net.irecvConsumed = net::irecv_consumed;
  if constexpr (requires { net.finalize; }) {
    net.init = net::init;
    net.listen = net::listen;
    net.connect = net::connect;
    net.finalize = net::finalize;
  } else {
    net.listen = listen_v6;
  }
  return net;
}

constexpr abi::v6::Net make_v6() {
  auto net = common_members<abi::v6::Net>();
  net.init = init_v6;
  net.getProperties = get_properties;
  net.connect = connect_v6;
  net.accept = accept_v6;
  net.regMr = reg_mr_v6;
  net.isend = isend_v6;
  net.irecv = irecv_v6;
  return net;
}

constexpr abi::v7::Net make_v7() {
  auto net = common_members<abi::v7::Net>();
  net.init = init_v6;
  net.getProperties = get_properties;
  net.connect = connect_v7;
  net.accept = net::accept;
  net.regMr = reg_mr_v6;
  net.isend = isend_v6;
  net.irecv = irecv_v6;
  return net;
}

constexpr abi::v8::Net make_v8() {
  auto net = common_members<abi::v8::Net>();
  net.init = init_v6;
  net.getProperties = get_properties;
  net.connect = connect_v7;
  net.accept = net::accept;
  net.regMr = net::reg_mr;
  net.isend = isend_v6;
  net.irecv = irecv_v6;
  return net;
}

constexpr abi::v9::Net make_v9() {
  auto net = common_members<abi::v9::Net>();
  net.init = init_v6;
  net.getProperties = get_properties;
  net.connect = connect_v7;
  net.accept = net::accept;
  net.regMr = net::reg_mr;
  net.isend = isend_v9;
  net.irecv = irecv_v9;
  return net;
}

/// v10 to v12: isend and irecv are the newest.
template <class Net>
constexpr Net make_newer() {
  auto net = common_members<Net>();
  net.accept = net::accept;
  net.regMr = net::reg_mr;
  net.isend = net::isend;
  net.irecv = net::irecv;
  return net;
}

constexpr abi::v10::Net make_v10() {
  auto net = make_newer<abi::v10::Net>();
  net.init = init_v10;
  net.getProperties = get_properties;
  net.connect = connect_v10;
  return net;
}

constexpr abi::v11::Net make_v11() {
  auto net = make_newer<abi::v11::Net>();
  net.getProperties = get_properties;
  return net;
}

constexpr abi::v12::Net make_v12() {
  auto net = make_newer<abi::v12::Net>();
  net.getProperties = net::get_properties;
  return net;
}

}  // namespace
}  // namespace mesh

// Not const: NCCL declares them so.
extern "C" {
[[gnu::visibility("default")]] constinit plugfest::abi::v6::Net ncclNetPlugin_v6 = mesh::make_v6();
[[gnu::visibility("default")]] constinit plugfest::abi::v7::Net ncclNetPlugin_v7 = mesh::make_v7();
[[gnu::visibility("default")]] constinit plugfest::abi::v8::Net ncclNetPlugin_v8 = mesh::make_v8();
[[gnu::visibility("default")]] constinit plugfest::abi::v9::Net ncclNetPlugin_v9 = mesh::make_v9();
[[gnu::visibility("default")]] constinit plugfest::abi::v10::Net ncclNetPlugin_v10 = mesh::make_v10();
[[gnu::visibility("default")]] constinit plugfest::abi::v11::Net ncclNetPlugin_v11 = mesh::make_v11();
[[gnu::visibility("default")]] constinit plugfest::abi::v12::Net ncclNetPlugin_v12 = mesh::make_v12();
}  // extern "C"
