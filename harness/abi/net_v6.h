// Net interface v6: symbol `ncclNetPlugin_v6` (NCCL 2.13 and later).
#pragma once

#include "harness/abi/base.h"

namespace plugfest::abi::v6 {

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
static_assert(sizeof(Properties) == 48);
static_assert(offsetof(Properties, ptrSupport) == 24 && offsetof(Properties, latency) == 36 &&
              offsetof(Properties, maxRecvs) == 44);

/// `ncclNet_v6_t`.
struct Net {
  const char* name;
  Result (*init)(Logger logger);
  Result (*devices)(int* ndev);
  Result (*getProperties)(int dev, Properties* props);
  Result (*listen)(int dev, void* handle, void** listenComm);
  Result (*connect)(int dev, void* handle, void** sendComm);
  Result (*accept)(void* listenComm, void** recvComm);
  Result (*regMr)(void* comm, void* data, int size, int type, void** mhandle);
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
};
static_assert(sizeof(Net) == 136);
static_assert(offsetof(Net, regMrDmaBuf) == 64 && offsetof(Net, test) == 104 && offsetof(Net, closeListen) == 128);

}  // namespace plugfest::abi::v6
