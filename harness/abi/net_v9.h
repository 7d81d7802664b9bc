// Net interface v9: symbol `ncclNetPlugin_v9` (NCCL 2.24 and later). New: sizes of size_t, virtual devices.
#pragma once

#include "harness/abi/base.h"

namespace plugfest::abi::v9 {

/// `ncclNetVDeviceProps_v9_t`: the physical devices behind a device.
struct VDevice {
  int ndevs;
  int devs[kMaxVDeviceMembersV9];
};
static_assert(sizeof(VDevice) == 20);

/// `ncclNetProperties_v9_t`. `speed` in Mbit/s, `latency` in microseconds.
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
};
static_assert(sizeof(Properties) == 104);
static_assert(offsetof(Properties, forceFlush) == 32 && offsetof(Properties, latency) == 44 &&
              offsetof(Properties, vProps) == 64 && offsetof(Properties, maxP2pBytes) == 88);

/// `ncclNet_v9_t`.
struct Net {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* ndev);
  Result (*getProperties)(int dev, Properties* props);
  Result (*listen)(int dev, void* handle, void** listenComm);
  Result (*connect)(int dev, void* handle, void** sendComm, DeviceHandle** sendDevComm);
  Result (*accept)(void* listenComm, void** recvComm, DeviceHandle** recvDevComm);
  Result (*regMr)(void* comm, void* data, std::size_t size, int type, void** mhandle);
  Result (*regMrDmaBuf)(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                        void** mhandle);  // may be null
  Result (*deregMr)(void* comm, void* mhandle);
  Result (*isend)(void* sendComm, void* data, std::size_t size, int tag, void* mhandle, void** request);
  Result (*irecv)(void* recvComm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request);
  Result (*iflush)(void* recvComm, int n, void** data, int* sizes, void** mhandles, void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*closeSend)(void* sendComm);
  Result (*closeRecv)(void* recvComm);
  Result (*closeListen)(void* listenComm);
  Result (*getDeviceMr)(void* comm, void* mhandle, void** dptrMhandle);  // may be null
  Result (*irecvConsumed)(void* recvComm, int n, void* request);         // may be null
  Result (*makeVDevice)(int* dev, VDevice* members);                     // may be null
};
static_assert(sizeof(Net) == 160);
static_assert(offsetof(Net, regMrDmaBuf) == 64 && offsetof(Net, test) == 104 && offsetof(Net, makeVDevice) == 152);

}  // namespace plugfest::abi::v9
