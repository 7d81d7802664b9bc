// Net interface v10: symbol `ncclNetPlugin_v10` (NCCL 2.26 and later). New: profiler, traffic class at connect.
#pragma once

#include "harness/abi/net_v9.h"

namespace plugfest::abi::v10 {

/// `ncclNetVDeviceProps_v10_t` and `ncclNetProperties_v10_t` are as in v9.
using VDevice = v9::VDevice;
using Properties = v9::Properties;

/// `ncclNetCommConfig_v10_t`: what a communicator asks of the network.
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
};
static_assert(sizeof(Net) == 160);
static_assert(offsetof(Net, regMrDmaBuf) == 64 && offsetof(Net, test) == 104 && offsetof(Net, makeVDevice) == 152);

}  // namespace plugfest::abi::v10
