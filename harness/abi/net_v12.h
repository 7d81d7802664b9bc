// Net interface v12: symbol `ncclNetPlugin_v12` (NCCL 2.30 and later). New: eight members, rail and plane.
#pragma once

#include "harness/abi/net_v11.h"

namespace plugfest::abi::v12 {

/// `ncclNetCommConfig_v12_t` and `ncclNetAttr_v12_t` are as in v11.
using CommConfig = v11::CommConfig;
using CommAttr = v11::CommAttr;
using NetAttr = v11::NetAttr;

/// `ncclNetVDeviceProps_v12_t`: the physical devices behind a device.
struct VDevice {
  int ndevs;
  int devs[kMaxVDeviceMembersV12];
};
static_assert(sizeof(VDevice) == 36);

/// `ncclNetProperties_v12_t`. `speed` in Mbit/s, `latency` in microseconds.
struct Properties {
  const char* name;
  const char* pciPath;
  std::uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  VDevice vProps;
  std::size_t maxP2pBytes;
  std::size_t maxCollBytes;
  int maxMultiRequestSize;
  std::int16_t railId;
  std::int16_t planeId;
};
static_assert(sizeof(Properties) == 128);
static_assert(offsetof(Properties, vProps) == 64 && offsetof(Properties, maxP2pBytes) == 104 &&
              offsetof(Properties, maxMultiRequestSize) == 120 && offsetof(Properties, planeId) == 126);

/// `ncclNet_v12_t`.
struct Net {
  const char* name;
  Result (*init)(void** ctx, std::uint64_t commId, CommConfig* config, Logger logger, ProfilerCallback profiler);
  Result (*devices)(int* ndev);
  Result (*getProperties)(int dev, Properties* props);
  Result (*listen)(void* ctx, int dev, void* handle, void** listenComm);
  Result (*connect)(void* ctx, int dev, void* handle, void** sendComm, DeviceHandle** sendDevComm);
  Result (*accept)(void* listenComm, void** recvComm, DeviceHandle** recvDevComm);
  Result (*regMr)(void* comm, void* data, std::size_t size, int type, void** mhandle);
  Result (*regMrDmaBuf)(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                        void** mhandle);  // may be null
  Result (*deregMr)(void* comm, void* mhandle);
  Result (*isend)(void* sendComm, void* data, std::size_t size, int tag, void* mhandle, void* phandle, void** request);
  Result (*irecv)(void* recvComm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** phandles,
                  void** request);
  Result (*iflush)(void* recvComm, int n, void** data, int* sizes, void** mhandles, void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*closeSend)(void* sendComm);
  Result (*closeRecv)(void* recvComm);
  Result (*closeListen)(void* listenComm);
  Result (*getDeviceMr)(void* comm, void* mhandle, void** dptrMhandle);  // may be null
  Result (*irecvConsumed)(void* recvComm, int n, void* request);         // may be null
  Result (*makeVDevice)(int* dev, VDevice* members);                     // may be null
  Result (*finalize)(void* ctx);                                         // called without a check
  Result (*setNetAttr)(void* ctx, NetAttr* attr);                        // may be null
};
static_assert(sizeof(Net) == 176);
static_assert(offsetof(Net, regMrDmaBuf) == 64 && offsetof(Net, test) == 104 && offsetof(Net, finalize) == 160 &&
              offsetof(Net, setNetAttr) == 168);

}  // namespace plugfest::abi::v12
