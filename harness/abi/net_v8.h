// Net interface v8: symbol `ncclNetPlugin_v8` (NCCL 2.20 and later). New: registrations beyond 2 GiB, regIsGlobal.
#pragma once

#include "harness/abi/base.h"

namespace plugfest::abi::v8 {

/// `ncclNetProperties_v8_t`. `speed` in Mbit/s, `latency` in microseconds.
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
  Result (*isend)(void* sendComm, void* data, int size, int tag, void* mhandle, void** request);
  Result (*irecv)(void* recvComm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request);
  Result (*iflush)(void* recvComm, int n, void** data, int* sizes, void** mhandles, void** request);
  Result (*test)(void* request, int* done, int* sizes);
  Result (*closeSend)(void* sendComm);
  Result (*closeRecv)(void* recvComm);
  Result (*closeListen)(void* listenComm);
  Result (*getDeviceMr)(void* comm, void* mhandle, void** dptrMhandle);  // may be null
  Result (*irecvConsumed)(void* recvComm, int n, void* request);         // may be null
};
static_assert(sizeof(Net) == 152);
static_assert(offsetof(Net, regMrDmaBuf) == 64 && offsetof(Net, test) == 104 && offsetof(Net, irecvConsumed) == 144);

}  // namespace plugfest::abi::v8
