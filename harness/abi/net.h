// Net interface v6 to v12: symbols `ncclNetPlugin_v6` to `_v12`.
//
// v6: NCCL 2.13 and later. v7 (2.19): device offload. v8 (2.20): registrations beyond 2 GiB, regIsGlobal. v9 (2.24):
// sizes of size_t, virtual devices. v10 (2.26): profiler, traffic class at connect. v11 (2.28): a context per
// communicator, finalize. v12 (2.30): eight members of a virtual device, rail and plane.
#pragma once

#include "harness/abi/base.h"

namespace plugfest::abi {

/// Functions that versions share. `Size`: the type of registrations' sizes. `Bytes`: the type of messages' sizes.
#define PLUGFEST_NET_MEMORY_CALLS(Size)                                                                   \
  Result (*regMr)(void* comm, void* data, Size size, int type, void** mhandle);                           \
  Result (*regMrDmaBuf)(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd, \
                        void** mhandle); /* may be null */                                                \
  Result (*deregMr)(void* comm, void* mhandle);
#define PLUGFEST_NET_TRANSFER_CALLS(Bytes)                                                                       \
  Result (*isend)(void* sendComm, void* data, Bytes size, int tag, void* mhandle, void** request);               \
  Result (*irecv)(void* recvComm, int n, void** data, Bytes* sizes, int* tags, void** mhandles, void** request); \
  PLUGFEST_NET_COMPLETION_CALLS
#define PLUGFEST_NET_TRANSFER_CALLS_V10                                                                                \
  Result (*isend)(void* sendComm, void* data, std::size_t size, int tag, void* mhandle, void* phandle,                 \
                  void** request);                                                                                     \
  Result (*irecv)(void* recvComm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** phandles, \
                  void** request);                                                                                     \
  PLUGFEST_NET_COMPLETION_CALLS
#define PLUGFEST_NET_COMPLETION_CALLS                                                                \
  Result (*iflush)(void* recvComm, int n, void** data, int* sizes, void** mhandles, void** request); \
  Result (*test)(void* request, int* done, int* sizes);                                              \
  Result (*closeSend)(void* sendComm);                                                               \
  Result (*closeRecv)(void* recvComm);                                                               \
  Result (*closeListen)(void* listenComm);
/// Device offload. Both may be null.
#define PLUGFEST_NET_OFFLOAD_CALLS                                      \
  Result (*getDeviceMr)(void* comm, void* mhandle, void** dptrMhandle); \
  Result (*irecvConsumed)(void* recvComm, int n, void* request);
/// All functions of v7 to v9 before the device offload.
#define PLUGFEST_NET_CALLS_V7(Size, Bytes)                                               \
  const char* name;                                                                      \
  Result (*init)(Logger logger);                                                         \
  Result (*devices)(int* ndev);                                                          \
  Result (*getProperties)(int dev, Properties* props);                                   \
  Result (*listen)(int dev, void* handle, void** listenComm);                            \
  Result (*connect)(int dev, void* handle, void** sendComm, DeviceHandle** sendDevComm); \
  Result (*accept)(void* listenComm, void** recvComm, DeviceHandle** recvDevComm);       \
  PLUGFEST_NET_MEMORY_CALLS(Size)                                                        \
  PLUGFEST_NET_TRANSFER_CALLS(Bytes)                                                     \
  PLUGFEST_NET_OFFLOAD_CALLS
/// All functions of v11 and v12.
#define PLUGFEST_NET_CALLS_V11                                                                                    \
  const char* name;                                                                                               \
  Result (*init)(void** ctx, std::uint64_t commId, CommConfig* config, Logger logger, ProfilerCallback profiler); \
  Result (*devices)(int* ndev);                                                                                   \
  Result (*getProperties)(int dev, Properties* props);                                                            \
  Result (*listen)(void* ctx, int dev, void* handle, void** listenComm);                                          \
  Result (*connect)(void* ctx, int dev, void* handle, void** sendComm, DeviceHandle** sendDevComm);               \
  Result (*accept)(void* listenComm, void** recvComm, DeviceHandle** recvDevComm);                                \
  PLUGFEST_NET_MEMORY_CALLS(std::size_t)                                                                          \
  PLUGFEST_NET_TRANSFER_CALLS_V10                                                                                 \
  PLUGFEST_NET_OFFLOAD_CALLS                                                                                      \
  Result (*makeVDevice)(int* dev, VDevice* members); /* may be null */                                            \
  Result (*finalize)(void* ctx);                     /* called without a check */                                 \
  Result (*setNetAttr)(void* ctx, NetAttr* attr);    /* may be null */

/// Properties of v9 and later. `speed` in Mbit/s, `latency` in microseconds.
#define PLUGFEST_NET_PROPERTIES \
  const char* name;             \
  const char* pciPath;          \
  std::uint64_t guid;           \
  int ptrSupport;               \
  int regIsGlobal;              \
  int forceFlush;               \
  int speed;                    \
  int port;                     \
  float latency;                \
  int maxComms;                 \
  int maxRecvs;                 \
  int netDeviceType;            \
  int netDeviceVersion;         \
  VDevice vProps;               \
  std::size_t maxP2pBytes;      \
  std::size_t maxCollBytes;

namespace v6 {
/// `ncclNetProperties_v6_t`. `speed` in Mbit/s, `latency` in microseconds.
struct Properties {
  const char* name;
  const char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
};
static_assert(sizeof(Properties) == 48 && offsetof(Properties, ptrSupport) == 24 &&
              offsetof(Properties, latency) == 36 && offsetof(Properties, maxRecvs) == 44);

/// `ncclNet_v6_t`.
struct Net {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* ndev);
  Result (*getProperties)(int dev, Properties* props);
  Result (*listen)(int dev, void* handle, void** listenComm);
  Result (*connect)(int dev, void* handle, void** sendComm);
  Result (*accept)(void* listenComm, void** recvComm);
  PLUGFEST_NET_MEMORY_CALLS(int)
  PLUGFEST_NET_TRANSFER_CALLS(int)
};
static_assert(sizeof(Net) == 136 && offsetof(Net, regMrDmaBuf) == 64 && offsetof(Net, test) == 104 &&
              offsetof(Net, closeListen) == 128);
}  // namespace v6

namespace v7 {
/// `ncclNetProperties_v7_t`.
struct Properties {
  const char* name;
  const char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
};
static_assert(sizeof(Properties) == 56 && offsetof(Properties, speed) == 28 && offsetof(Properties, maxRecvs) == 44 &&
              offsetof(Properties, netDeviceVersion) == 52);

/// `ncclNet_v7_t`.
struct Net {
  PLUGFEST_NET_CALLS_V7(int, int)
};
static_assert(sizeof(Net) == 152 && offsetof(Net, regMrDmaBuf) == 64 && offsetof(Net, test) == 104 &&
              offsetof(Net, irecvConsumed) == 144);
}  // namespace v7

namespace v8 {
/// `ncclNetProperties_v8_t`.
struct Properties {
  const char* name;
  const char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
};
static_assert(sizeof(Properties) == 64);  // four bytes of padding at the end
static_assert(offsetof(Properties, regIsGlobal) == 28 && offsetof(Properties, latency) == 40 &&
              offsetof(Properties, netDeviceVersion) == 56);

/// `ncclNet_v8_t`.
struct Net {
  PLUGFEST_NET_CALLS_V7(std::size_t, int)
};
static_assert(sizeof(Net) == 152 && offsetof(Net, regMrDmaBuf) == 64 && offsetof(Net, test) == 104 &&
              offsetof(Net, irecvConsumed) == 144);
}  // namespace v8

namespace v9 {
/// `ncclNetVDeviceProps_v9_t`: the physical devices behind a device.
struct VDevice {
  int ndevs;
  int devs[kMaxVDeviceMembersV9];
};
static_assert(sizeof(VDevice) == 20);

/// `ncclNetProperties_v9_t`.
struct Properties {
  PLUGFEST_NET_PROPERTIES
};
static_assert(sizeof(Properties) == 104 && offsetof(Properties, forceFlush) == 32 &&
              offsetof(Properties, latency) == 44 && offsetof(Properties, vProps) == 64 &&
              offsetof(Properties, maxP2pBytes) == 88);

/// `ncclNet_v9_t`.
struct Net {
  PLUGFEST_NET_CALLS_V7(std::size_t, std::size_t)
  Result (*makeVDevice)(int* dev, VDevice* members);  // may be null
};
static_assert(sizeof(Net) == 160 && offsetof(Net, regMrDmaBuf) == 64 && offsetof(Net, test) == 104 &&
              offsetof(Net, makeVDevice) == 152);
}  // namespace v9

namespace v10 {
using v9::Properties;
using v9::VDevice;

/// `ncclNetCommConfig_v10_t`: what a communicator requests from the network.
struct CommConfig {
  int trafficClass;
};
static_assert(sizeof(CommConfig) == 4);

/// `ncclNet_v10_t`.
struct Net {
  const char* name;
  Result (*init)(Logger logger, ProfilerCallback profiler);
  Result (*devices)(int* ndev);
  Result (*getProperties)(int dev, Properties* props);
  Result (*listen)(int dev, void* handle, void** listenComm);
  Result (*connect)(int dev, CommConfig* config, void* handle, void** sendComm, DeviceHandle** sendDevComm);
  Result (*accept)(void* listenComm, void** recvComm, DeviceHandle** recvDevComm);
  PLUGFEST_NET_MEMORY_CALLS(std::size_t)
  PLUGFEST_NET_TRANSFER_CALLS_V10
  PLUGFEST_NET_OFFLOAD_CALLS
  Result (*makeVDevice)(int* dev, VDevice* members);  // may be null
};
static_assert(sizeof(Net) == 160 && offsetof(Net, regMrDmaBuf) == 64 && offsetof(Net, test) == 104 &&
              offsetof(Net, makeVDevice) == 152);
}  // namespace v10

namespace v11 {
using v10::CommConfig;
using v10::VDevice;

/// `ncclNetProperties_v11_t`.
struct Properties {
  PLUGFEST_NET_PROPERTIES
  int maxMultiRequestSize;
};
static_assert(sizeof(Properties) == 112);  // four bytes of padding at the end
static_assert(offsetof(Properties, vProps) == 64 && offsetof(Properties, maxP2pBytes) == 88 &&
              offsetof(Properties, maxMultiRequestSize) == 104);

/// `ncclNetCommAttr_v11_t`: NCCL's expectation for one direction; -1 is unknown.
struct CommAttr {
  std::int32_t maxConcurrentPeers;
  std::int32_t minConcurrentPeers;
  std::int32_t maxFlowsPerPeer;
  std::int32_t minFlowsPerPeer;
};

/// `ncclNetAttr_v11_t`: a hint before connects and transfers; all bits set is unknown.
struct NetAttr {
  CommAttr sendCommAttr;
  CommAttr recvCommAttr;
  std::uint32_t op;
  std::uint32_t algo;
  std::uint32_t proto;
};
static_assert(sizeof(NetAttr) == 44);

/// `ncclNet_v11_t`.
struct Net {
  PLUGFEST_NET_CALLS_V11
};
static_assert(sizeof(Net) == 176 && offsetof(Net, regMrDmaBuf) == 64 && offsetof(Net, test) == 104 &&
              offsetof(Net, finalize) == 160 && offsetof(Net, setNetAttr) == 168);
}  // namespace v11

namespace v12 {
using v11::CommAttr;
using v11::CommConfig;
using v11::NetAttr;

/// `ncclNetVDeviceProps_v12_t`: the physical devices behind a device.
struct VDevice {
  int ndevs;
  int devs[kMaxVDeviceMembersV12];
};
static_assert(sizeof(VDevice) == 36);

/// `ncclNetProperties_v12_t`.
struct Properties {
  PLUGFEST_NET_PROPERTIES
  int maxMultiRequestSize;
  std::int16_t railId;
  std::int16_t planeId;
};
static_assert(sizeof(Properties) == 128 && offsetof(Properties, vProps) == 64 &&
              offsetof(Properties, maxP2pBytes) == 104 && offsetof(Properties, maxMultiRequestSize) == 120 &&
              offsetof(Properties, planeId) == 126);

/// `ncclNet_v12_t`.
struct Net {
  PLUGFEST_NET_CALLS_V11
};
static_assert(sizeof(Net) == 176 && offsetof(Net, regMrDmaBuf) == 64 && offsetof(Net, test) == 104 &&
              offsetof(Net, finalize) == 160 && offsetof(Net, setNetAttr) == 168);
}  // namespace v12

#undef PLUGFEST_NET_MEMORY_CALLS
#undef PLUGFEST_NET_TRANSFER_CALLS
#undef PLUGFEST_NET_TRANSFER_CALLS_V10
#undef PLUGFEST_NET_COMPLETION_CALLS
#undef PLUGFEST_NET_OFFLOAD_CALLS
#undef PLUGFEST_NET_CALLS_V7
#undef PLUGFEST_NET_CALLS_V11
#undef PLUGFEST_NET_PROPERTIES

/// All versions that Plugfest knows, the newest last: X(6) …
#define PLUGFEST_NET_VERSIONS(X) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
namespace newest = v12;
inline constexpr int kOldestNet = 6;
inline constexpr int kNewestNet = 12;

}  // namespace plugfest::abi
