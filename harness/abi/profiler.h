// Profiler interface v1 to v7: symbols `ncclProfiler_v1` to `_v7`. The symbols have no "Plugin" in their names.
#pragma once

#include <bit>

#include "harness/abi/base.h"

namespace plugfest::abi {

/// `Init`: the type of init. Descriptors have a layout for each version, which
/// conformance/interfaces/profiler_descriptors.cc describes.
template <typename Init>
struct Profiler {
  const char* name;
  Init init;
  Result (*startEvent)(void* context, void** eventHandle, void* descriptor);
  Result (*stopEvent)(void* eventHandle);
  Result (*recordEventState)(void* eventHandle, int state, void* stateArgs);
  Result (*finalize)(void* context);
};
using ProfilerV1 = Profiler<Result (*)(void** context, int* activationMask)>;
using ProfilerV4 = Profiler<Result (*)(void** context, int* activationMask, const char* commName,
                                       std::uint64_t commHash, int nNodes, int nranks, int rank, Logger logger)>;
using ProfilerV5 = Profiler<Result (*)(void** context, std::uint64_t commId, int* activationMask, const char* commName,
                                       int nNodes, int nranks, int rank, Logger logger)>;
static_assert(sizeof(ProfilerV1) == 48 && sizeof(ProfilerV4) == 48 && sizeof(ProfilerV5) == 48);
static_assert(offsetof(ProfilerV5, init) == 8 && offsetof(ProfilerV5, finalize) == 40);

/// Bits of the activation mask. v1 and v2 know the bits up to ProxyCtrl, v3 and v4 up to NetPlugin, v5 up to
/// KernelLaunch, v6 up to CeBatch, v7 all.
enum ProfilerEvent : int {
  kProfileGroup = 0x1,
  kProfileColl = 0x2,
  kProfileP2p = 0x4,
  kProfileProxyOp = 0x8,
  kProfileProxyStep = 0x10,
  kProfileProxyCtrl = 0x20,
  kProfileKernelCh = 0x40,
  kProfileNetPlugin = 0x80,
  kProfileGroupApi = 0x100,
  kProfileCollApi = 0x200,
  kProfileP2pApi = 0x400,
  kProfileKernelLaunch = 0x800,
  kProfileCeColl = 0x1000,
  kProfileCeSync = 0x2000,
  kProfileCeBatch = 0x4000,
  kProfileKernelPhase = 0x8000,
};

/// The number of the event's bit.
constexpr int bit_of(ProfilerEvent event) { return std::countr_zero(static_cast<unsigned>(event)); }

/// States of events in v1 to v6. Source: include/plugin/nccl_profiler.h.
enum ProfilerState : int {
  kStateOpSendPosted = 0,  ///< v1 to v3, as the next three
  kStateOpSendDone = 3,
  kStateOpRecvPosted = 4,
  kStateOpRecvDone = 7,
  kStateSendGpuWait = 8,
  kStateSendWait = 9,
  kStateRecvWait = 10,
  kStateRecvFlushWait = 11,
  kStateRecvGpuWait = 12,
  kStateCtrlIdle = 13,
  kStateCtrlSleep = 15,
  kStateCtrlWakeup = 16,
  kStateCtrlAppend = 17,
  kStateCtrlAppendEnd = 18,
  kStateOpInProgress = 19,  ///< v4 and later, as the next three
  kStateSendPeerWait = 20,
  kStateNetUpdate = 21,
  kStateKernelStop = 22,
  kStateGroupStartStop = 23,  ///< v5 and later, as the next one
  kStateGroupEndStart = 24,
};
inline constexpr ProfilerState kLastProfilerState = kStateGroupEndStart;

/// `pluginId` and `extData` of a net plugin's callback for the work of a queue pair: type and version 1 of NCCL's own
/// IB transport (`ncclProfilerNetIbDescr_v1_t`), which profilers know.
inline constexpr std::int64_t kProfilerQueuePairId = 1 << 16 | 1;
struct ProfilerQueuePairEvent {
  std::uint8_t type = 1;      ///< a queue pair
  alignas(8) int device = 0;  ///< index of the net device
  std::uint64_t wr_id = 0;
  int opcode = 0;  ///< an `ibv_wr_opcode`
  int qpNum = 0;
  std::size_t length = 0;
};
static_assert(sizeof(ProfilerQueuePairEvent) == 40);
static_assert(offsetof(ProfilerQueuePairEvent, device) == 8 && offsetof(ProfilerQueuePairEvent, wr_id) == 16 &&
              offsetof(ProfilerQueuePairEvent, qpNum) == 28 && offsetof(ProfilerQueuePairEvent, length) == 32);

/// `pluginId` and `extData` for the work of a socket: version 1 of NCCL's socket transport
/// (`ncclProfilerNetSockDescr_v1_t`).
inline constexpr std::int64_t kProfilerSocketId = 2 << 16 | 1;
struct ProfilerSocketEvent {
  std::uint8_t type = 1;  ///< a socket
  alignas(8) int fd = 0;
  int op = 0;
  std::size_t length = 0;
};
static_assert(sizeof(ProfilerSocketEvent) == 24);
static_assert(offsetof(ProfilerSocketEvent, fd) == 8 && offsetof(ProfilerSocketEvent, length) == 16);

}  // namespace plugfest::abi
