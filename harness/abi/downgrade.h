// Exposes an implementation of the newest net as net of each version.
//
//   constexpr abi::newest::Net kNewest = {.name = "Mesh", .init = init, …};
//   struct WithoutContext { … };
//   constinit abi::v8::Net ncclNetPlugin_v8 = abi::Downgrade<kNewest, WithoutContext>::table<abi::v8::Net>();
//
// A function of an older version passes its arguments on. Older versions differ: sizes are int up to v8 (regMr: up to
// v7); the profiler's handles begin with v10; contexts and finalize begin with v11.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <type_traits>

#include "harness/abi/net.h"

namespace plugfest::abi {

/// The members of Properties other than vProps: X(name) …
// clang-format off
#define PLUGFEST_NET_PROPERTY_NAMES(X) \
  X(name) X(pciPath) X(guid) X(ptrSupport) X(regIsGlobal) X(forceFlush) X(speed) X(port) X(latency) X(maxComms) \
  X(maxRecvs) X(netDeviceType) X(netDeviceVersion) X(maxP2pBytes) X(maxCollBytes) X(maxMultiRequestSize) X(railId) \
  X(planeId)
// clang-format on

/// Copies the members, other than vProps, that both versions have.
template <typename To, typename From>
void copy_properties(To& to, const From& from) {
#define PLUGFEST_COPY(member) \
  if constexpr (requires { to.member = from.member; }) to.member = from.member;
  PLUGFEST_NET_PROPERTY_NAMES(PLUGFEST_COPY)
#undef PLUGFEST_COPY
}

/// getProperties of an older version, by means of `kGetNewest`, the newest getProperties. Leaves out the members of a
/// virtual device for which the older structure has no room.
template <Result (*kGetNewest)(int, newest::Properties*), typename Properties>
Result get_older_properties(int device, Properties* properties) {
  if (properties == nullptr) return kGetNewest(device, nullptr);
  newest::Properties all = {};
  const Result result = kGetNewest(device, &all);
  if (result != Result::kSuccess) return result;
  copy_properties(*properties, all);
  if constexpr (requires { properties->vProps; }) {
    properties->vProps.ndevs = std::min(all.vProps.ndevs, kMaxVDeviceMembersV9);
    std::copy_n(all.vProps.devs, kMaxVDeviceMembersV9, properties->vProps.devs);
  }
  return result;
}

/// `kNewest`: the implementation, whose table has static storage. A function that is null in it is null in every
/// version. Its irecv must refuse more than kMaxReceiveBuffers buffers before it reads their sizes.
///
/// `WithoutContext`: static functions for v6 to v10.
///   Result init(Logger logger, ProfilerCallback profiler);  `profiler`: null below v10.
///   void* context();                                        Passed to listen.
///   Result connect(int device, newest::CommConfig* config, void* handle, void** send_comm,
///                  DeviceHandle** device_handle);           `config`: null below v10; `device_handle`: null in v6.
template <const newest::Net& kNewest, typename WithoutContext>
class Downgrade {
 public:
  /// The function table of one version: `Net` is v6::Net to v12::Net.
  template <typename Net>
  static constexpr Net table() requires(std::is_same_v<Net, newest::Net>) {
    return kNewest;
  }
  template <typename Net>
  static constexpr Net table() {
    Net net = {};
    net.name = kNewest.name;
    choose(net.init, kNewest.init, init_v6, init_v10);
    net.devices = kNewest.devices;
    net.getProperties = get_older_properties<kNewest.getProperties>;
    choose(net.listen, kNewest.listen, listen_v6);
    choose(net.connect, kNewest.connect, connect_v6, connect_v7, connect_v10);
    choose(net.accept, kNewest.accept, accept_v6);
    choose(net.regMr, kNewest.regMr, reg_mr_v6);
    net.regMrDmaBuf = kNewest.regMrDmaBuf;
    net.deregMr = kNewest.deregMr;
    choose(net.isend, kNewest.isend, isend_v6, isend_v9);
    choose(net.irecv, kNewest.irecv, irecv_v6, irecv_v9);
    net.iflush = kNewest.iflush;
    net.test = kNewest.test;
    net.closeSend = kNewest.closeSend;
    net.closeRecv = kNewest.closeRecv;
    net.closeListen = kNewest.closeListen;
    if constexpr (requires { net.getDeviceMr; }) net.getDeviceMr = kNewest.getDeviceMr;
    if constexpr (requires { net.irecvConsumed; }) net.irecvConsumed = kNewest.irecvConsumed;
    if constexpr (requires { net.makeVDevice; } && has_make_vdevice()) net.makeVDevice = make_vdevice_v9;
    if constexpr (requires { net.finalize; }) net.finalize = kNewest.finalize;
    if constexpr (requires { net.setNetAttr; }) net.setNetAttr = kNewest.setNetAttr;
    return net;
  }

 private:
  /// With -fsanitize=undefined, GCC 12 does not compare a function's address with null in a constant expression.
  static constexpr bool has_make_vdevice() {
    using Function = decltype(newest::Net::makeVDevice);
    return !std::is_same_v<std::integral_constant<Function, kNewest.makeVDevice>,
                           std::integral_constant<Function, nullptr>>;
  }

  /// Stores in `slot` the function of `functions` that has its type.
  template <typename Slot, typename... Function>
  static constexpr void choose(Slot& slot, Function... functions) {
    static_assert((std::is_same_v<Slot, Function> || ...));
    const auto store = [&slot](auto function) {
      if constexpr (std::is_same_v<Slot, decltype(function)>) slot = function;
    };
    (store(functions), ...);
  }

  /// Members for which the structure has no room become -1, which is not a device.
  static Result make_vdevice_v9(int* device, v9::VDevice* members) {
    if (members == nullptr) return kNewest.makeVDevice(device, nullptr);
    newest::VDevice all = {.ndevs = members->ndevs, .devs = {}};
    std::fill(std::copy(std::begin(members->devs), std::end(members->devs), all.devs), std::end(all.devs), -1);
    return kNewest.makeVDevice(device, &all);
  }

  static Result init_v6(Logger logger) { return WithoutContext::init(logger, nullptr); }
  static Result init_v10(Logger logger, ProfilerCallback profiler) { return WithoutContext::init(logger, profiler); }

  static Result listen_v6(int device, void* handle, void** listen_comm) {
    return kNewest.listen(WithoutContext::context(), device, handle, listen_comm);
  }

  static Result connect_v6(int device, void* handle, void** send_comm) {
    return WithoutContext::connect(device, nullptr, handle, send_comm, nullptr);
  }
  static Result connect_v7(int device, void* handle, void** send_comm, DeviceHandle** device_handle) {
    return WithoutContext::connect(device, nullptr, handle, send_comm, device_handle);
  }
  static Result connect_v10(int device, newest::CommConfig* config, void* handle, void** send_comm,
                            DeviceHandle** device_handle) {
    return WithoutContext::connect(device, config, handle, send_comm, device_handle);
  }

  static Result accept_v6(void* listen_comm, void** recv_comm) {
    return kNewest.accept(listen_comm, recv_comm, nullptr);
  }

  /// A negative size becomes one that is larger than any registration.
  static std::size_t widened(int size) { return static_cast<std::size_t>(static_cast<std::ptrdiff_t>(size)); }

  static Result reg_mr_v6(void* comm, void* data, int size, int type, void** mhandle) {
    return kNewest.regMr(comm, data, widened(size), type, mhandle);
  }

  static Result isend_v6(void* send_comm, void* data, int size, int tag, void* mhandle, void** request) {
    return kNewest.isend(send_comm, data, widened(size), tag, mhandle, nullptr, request);
  }
  static Result isend_v9(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
    return kNewest.isend(send_comm, data, size, tag, mhandle, nullptr, request);
  }

  static Result irecv_v6(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request) {
    std::size_t wide[kMaxReceiveBuffers];
    for (int i = 0; i < n && i < kMaxReceiveBuffers; ++i) wide[i] = widened(sizes[i]);
    return kNewest.irecv(recv_comm, n, data, wide, tags, mhandles, nullptr, request);
  }
  static Result irecv_v9(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles,
                         void** request) {
    return kNewest.irecv(recv_comm, n, data, sizes, tags, mhandles, nullptr, request);
  }
};

}  // namespace plugfest::abi
