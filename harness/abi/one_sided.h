// One-sided interfaces: GIN v11 to v15, symbols `ncclGinPlugin_v11` to `_v15`, and RMA v13 to v16, symbols
// `ncclRmaPlugin_v13` to `_v16`.
//
// GIN v11: NCCL 2.28.7. v12 (2.29.7): connections and contexts. v13 (2.30.3): gets, flushes, a context in each call;
// RMA v13 is the same table. GIN v14 has no data calls: NCCL's GIN proxy calls an RMA plugin from 2.30.7 on. RMA v14
// (2.30.7): weak signals, one handle of a registration. v15 (2.31.2): options of requests. v16 (2.32.3):
// getRmaProperties.
#pragma once

#include "harness/abi/net.h"

namespace plugfest::abi {

/// Whether this version of GIN or RMA has iget and several contexts of a comm, which data calls name.
constexpr bool has_gets_and_contexts(int api) { return api >= 13; }

/// `signalOp` of iputSignal: adds 1 and ignores the value, or adds the value.
enum SignalOp : std::uint32_t { kSignalInc = 1, kSignalAdd = 2 };
/// Bits of `mrFlags`: the NIC writes the region in strict order; no signal in it is ever reset.
enum RegistrationFlag : std::uint64_t { kForceStrictOrder = 0x1, kSignalNeverReset = 0x2 };
/// Bit of `optFlags`: the plugin may post this request together with the next one.
inline constexpr std::uint32_t kAggregateRequests = 0x1;
/// `trafficClass` of a context when the user gave none.
inline constexpr int kContextTrafficClassUndefined = INT32_MIN;

/// `ncclGinConfig_v13_t`.
struct GinConfigV13 {
  int nSignals;
  int nCounters;
  int nContexts;
  int queueDepth;
  int trafficClass;
};
/// `ncclRmaConfig_v14_t` to `_v16_t`.
struct RmaConfig {
  int nContexts;
  int trafficClass;
  int rankStride;
};
static_assert(sizeof(GinConfigV13) == 20 && sizeof(RmaConfig) == 12);

/// `more`: a function behind devices, or nothing.
#define PLUGFEST_ONE_SIDED_DEVICES(more)                           \
  const char* name;                                                \
  Result (*init)(void** ctx, std::uint64_t commId, Logger logger); \
  Result (*devices)(int* ndev);                                    \
  more Result (*getProperties)(int dev, Properties* props);        \
  Result (*listen)(void* ctx, int dev, void* handle, void** listenComm);
#define PLUGFEST_ONE_SIDED_CONNECT \
  Result (*connect)(void* ctx, void** handles, int nranks, int rank, void* listenComm, void** collComm);
/// `ginHandle`: the handle that device code uses. In proxy mode it comes back in data calls.
#define PLUGFEST_GIN_MEMORY_CALLS                                                                                   \
  Result (*regMrSym)(void* collComm, void* data, std::size_t size, int type, std::uint64_t mrFlags, void** mhandle, \
                     void** ginHandle);                                                                             \
  Result (*regMrSymDmaBuf)(void* collComm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,    \
                           std::uint64_t mrFlags, void** mhandle, void** ginHandle); /* may be null */              \
  PLUGFEST_ONE_SIDED_CLOSE_CALLS
#define PLUGFEST_RMA_MEMORY_CALLS                                                                                    \
  Result (*regMrSym)(void* collComm, void* data, std::size_t size, int type, std::uint64_t mrFlags, void** mhandle); \
  Result (*regMrSymDmaBuf)(void* collComm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,     \
                           std::uint64_t mrFlags, void** mhandle); /* may be null */                                 \
  PLUGFEST_ONE_SIDED_CLOSE_CALLS
#define PLUGFEST_ONE_SIDED_CLOSE_CALLS                 \
  Result (*deregMrSym)(void* collComm, void* mhandle); \
  Result (*destroyContext)(void* ginCtx);              \
  Result (*closeColl)(void* collComm);                 \
  Result (*closeListen)(void* listenComm);
/// The leading parameters of data calls from v13 on.
#define PLUGFEST_ONE_SIDED_PUT                                                                               \
  void *ginCtx, int context, std::uint64_t srcOff, void *srcMhandle, std::size_t size, std::uint64_t dstOff, \
      void *dstMhandle, std::uint32_t rank
#define PLUGFEST_ONE_SIDED_GET                                                                                       \
  void *ginCtx, int context, std::uint64_t remoteOff, void *remoteMhandle, std::size_t size, std::uint64_t localOff, \
      void *localMhandle, std::uint32_t rank
#define PLUGFEST_ONE_SIDED_SIGNAL \
  std::uint64_t signalOff, void *signalMhandle, std::uint64_t signalValue, std::uint32_t signalOp
#define PLUGFEST_ONE_SIDED_END(progress)                                                          \
  Result (*iflush)(void* ginCtx, int context, void* mhandle, std::uint32_t rank, void** request); \
  Result (*test)(void* collComm, void* request, int* done);                                       \
  Result (*progress)(void* ginCtx);                       /* may be null */                       \
  Result (*queryLastError)(void* ginCtx, bool* hasError); /* may be null */                       \
  Result (*finalize)(void* ctx);

/// GIN v11, whose data calls have no context.
struct GinV11 {
  using Properties = v11::Properties;
  PLUGFEST_ONE_SIDED_DEVICES()
  PLUGFEST_ONE_SIDED_CONNECT
  Result (*createContext)(void* collComm, int nSignals, int nCounters, void** ginCtx, DeviceHandle** devHandle);
  PLUGFEST_GIN_MEMORY_CALLS
  Result (*iput)(void* collComm, std::uint64_t srcOff, void* srcMhandle, std::size_t size, std::uint64_t dstOff,
                 void* dstMhandle, std::uint32_t rank, void** request);
  Result (*iputSignal)(void* collComm, std::uint64_t srcOff, void* srcMhandle, std::size_t size, std::uint64_t dstOff,
                       void* dstMhandle, std::uint32_t rank, PLUGFEST_ONE_SIDED_SIGNAL, void** request);
  Result (*test)(void* collComm, void* request, int* done);
  Result (*ginProgress)(void* collComm);                   // may be null
  Result (*queryLastError)(void* ginCtx, bool* hasError);  // may be null
  Result (*finalize)(void* ctx);
};

/// GIN v12, whose data calls name one of the connections.
struct GinV12 {
  using Properties = v11::Properties;
  PLUGFEST_ONE_SIDED_DEVICES()
  Result (*connect)(void* ctx, void** handles, int nranks, int rank, int nConnections, int queueDepth, void* listenComm,
                    void** collComm);
  Result (*createContext)(void* collComm, int nSignals, int nCounters, int nContexts, void** ginCtx,
                          DeviceHandle** devHandle);
  PLUGFEST_GIN_MEMORY_CALLS
  Result (*iput)(void* collComm, std::uint64_t srcOff, void* srcMhandle, std::size_t size, std::uint64_t dstOff,
                 void* dstMhandle, std::uint32_t rank, int connectionId, void** request);
  Result (*iputSignal)(void* collComm, std::uint64_t srcOff, void* srcMhandle, std::size_t size, std::uint64_t dstOff,
                       void* dstMhandle, std::uint32_t rank, PLUGFEST_ONE_SIDED_SIGNAL, int connectionId,
                       void** request);
  Result (*test)(void* collComm, void* request, int* done);
  Result (*ginProgress)(void* collComm);                   // may be null
  Result (*queryLastError)(void* ginCtx, bool* hasError);  // may be null
  Result (*finalize)(void* ctx);
};

/// GIN v13 and RMA v13.
struct OneSidedV13 {
  using Properties = v12::Properties;
  PLUGFEST_ONE_SIDED_DEVICES()
  PLUGFEST_ONE_SIDED_CONNECT
  Result (*createContext)(void* collComm, GinConfigV13* config, void** ginCtx, DeviceHandle** devHandle);
  PLUGFEST_GIN_MEMORY_CALLS
  Result (*iput)(PLUGFEST_ONE_SIDED_PUT, void** request);
  Result (*iputSignal)(PLUGFEST_ONE_SIDED_PUT, PLUGFEST_ONE_SIDED_SIGNAL, void** request);
  Result (*iget)(PLUGFEST_ONE_SIDED_GET, void** request);
  PLUGFEST_ONE_SIDED_END(ginProgress)
};

/// `ncclGinProperties_v14_t`.
struct GinProperties {
  bool supportsStrongSignals;
  bool supportsVASignals;
};

/// GIN v14 and v15, which have no data calls. Their configurations of contexts differ.
struct GinV14 {
  using Properties = v12::Properties;
  const char* name;
  Result (*init)(void** ctx, std::uint64_t commId, Logger logger);
  Result (*devices)(int* ndev);
  Result (*getGinProperties)(GinProperties* ginProps);
  Result (*getProperties)(int dev, Properties* props);
  Result (*listen)(void* ctx, int dev, void* handle, void** listenComm);
  PLUGFEST_ONE_SIDED_CONNECT
  Result (*createContext)(void* collComm, void* config, void** ginCtx, DeviceHandle** devHandle);
  PLUGFEST_GIN_MEMORY_CALLS
  Result (*ginProgress)(void* ginCtx);                     // may be null
  Result (*queryLastError)(void* ginCtx, bool* hasError);  // may be null
  Result (*finalize)(void* ctx);
};

struct RmaV14 {
  using Properties = v12::Properties;
  PLUGFEST_ONE_SIDED_DEVICES()
  PLUGFEST_ONE_SIDED_CONNECT
  Result (*createContext)(void* collComm, RmaConfig* config, void** rmaCtx);
  PLUGFEST_RMA_MEMORY_CALLS
  Result (*iput)(PLUGFEST_ONE_SIDED_PUT, void** request);
  Result (*iputSignal)(PLUGFEST_ONE_SIDED_PUT, PLUGFEST_ONE_SIDED_SIGNAL, bool isStrongSignal, void** request);
  Result (*iget)(PLUGFEST_ONE_SIDED_GET, void** request);
  PLUGFEST_ONE_SIDED_END(rmaProgress)
};

#define PLUGFEST_RMA_CALLS_V15                                                                                         \
  PLUGFEST_ONE_SIDED_CONNECT                                                                                           \
  Result (*createContext)(void* collComm, RmaConfig* config, void** rmaCtx);                                           \
  PLUGFEST_RMA_MEMORY_CALLS                                                                                            \
  Result (*iput)(PLUGFEST_ONE_SIDED_PUT, std::uint32_t optFlags, void** request);                                      \
  Result (*iputSignal)(PLUGFEST_ONE_SIDED_PUT, PLUGFEST_ONE_SIDED_SIGNAL, bool isStrongSignal, std::uint32_t optFlags, \
                       void** request);                                                                                \
  Result (*iget)(PLUGFEST_ONE_SIDED_GET, std::uint32_t optFlags, void** request);                                      \
  PLUGFEST_ONE_SIDED_END(rmaProgress)

struct RmaV15 {
  using Properties = v12::Properties;
  PLUGFEST_ONE_SIDED_DEVICES()
  PLUGFEST_RMA_CALLS_V15
};

/// `ncclRmaProperties_v16_t`: whether one signal of any peer makes all received puts visible.
struct RmaProperties {
  bool flushesAllPutsOnAnySignal;
};

struct RmaV16 {
  using Properties = v12::Properties;
  PLUGFEST_ONE_SIDED_DEVICES(Result (*getRmaProperties)(void* collComm, RmaProperties* rmaProps);)
  PLUGFEST_RMA_CALLS_V15
};
#undef PLUGFEST_RMA_CALLS_V15

#undef PLUGFEST_ONE_SIDED_END
#undef PLUGFEST_ONE_SIDED_SIGNAL
#undef PLUGFEST_ONE_SIDED_GET
#undef PLUGFEST_ONE_SIDED_PUT
#undef PLUGFEST_ONE_SIDED_CLOSE_CALLS
#undef PLUGFEST_RMA_MEMORY_CALLS
#undef PLUGFEST_GIN_MEMORY_CALLS
#undef PLUGFEST_ONE_SIDED_CONNECT
#undef PLUGFEST_ONE_SIDED_DEVICES

static_assert(sizeof(GinV11) == 152 && sizeof(GinV12) == 152 && sizeof(OneSidedV13) == 168);
static_assert(sizeof(GinV14) == 136 && sizeof(RmaV14) == 168 && sizeof(RmaV15) == 168 && sizeof(RmaV16) == 176);
static_assert(offsetof(GinV11, iput) == 104 && offsetof(OneSidedV13, iget) == 120);
static_assert(offsetof(OneSidedV13, finalize) == 160 && offsetof(RmaV15, test) == 136 &&
              offsetof(RmaV16, getRmaProperties) == 24);

}  // namespace plugfest::abi
