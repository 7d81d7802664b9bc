// The descriptors of events of profiler v1 to v3, which also identify the communicator. Source:
// include/plugin/profiler/profiler_v1.h to profiler_v3.h of NCCL 2.30.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "harness/abi/profiler.h"
#include "harness/trace/recorder/descriptor.h"

namespace plugfest::trace {

struct CollectiveV1 {
  const char* name;
  std::uint64_t commHash;
  std::uint64_t seqNumber;
  std::uint8_t func;
  const void* sendBuff;
  void* recvBuff;
  std::size_t count;
  int root;
  std::uint8_t datatype;
  std::uint32_t op;
  std::size_t trafficBytes;
  std::uint8_t nMaxChannels;
  std::uint8_t nWarps;
  std::uint8_t algo;
  std::uint8_t proto;
  int isCollnet;
  int isNvls;
};
struct PointToPointV1 {
  const char* name;
  std::uint64_t commHash;
  std::uint8_t func;
  void* buff;
  std::uint8_t datatype;
  std::size_t count;
  int peer;
};

/// Texts may be null.
struct CollectiveV2 {
  const char* name;
  std::uint64_t commHash;
  std::uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  std::size_t count;
  int root;
  const char* datatype;
  std::size_t trafficBytes;
  std::uint8_t nMaxChannels;
  std::uint8_t nWarps;
  const char* algo;
  const char* proto;
};
struct CollectiveV3 {
  const char* name;
  std::uint64_t commHash;
  std::uint64_t seqNumber;
  const char* func;
  const void* sendBuff;
  void* recvBuff;
  std::size_t count;
  int root;
  const char* datatype;
  std::uint8_t nMaxChannels;
  std::uint8_t nWarps;
  const char* algo;
  const char* proto;
};
struct PointToPointV2 {
  const char* name;
  std::uint64_t commHash;
  const char* func;
  void* buff;
  const char* datatype;
  std::size_t count;
  int peer;
};

/// `Collective`, `PointToPoint`: the structures of v1, v2 or v3. The other members have the layout of v4.
template <typename Collective, typename PointToPoint>
struct OlderDescriptor {
  std::uint8_t type;
  void* parentObj;
  int rank;
  union {
    Collective coll;
    PointToPoint p2p;
    decltype(Descriptor<std::uint64_t>::proxyOp) proxyOp;
    decltype(Descriptor<std::uint64_t>::proxyStep) proxyStep;
    std::uint8_t channel;  ///< of a kernel, v3
    decltype(Descriptor<std::uint64_t>::netPlugin) netPlugin;
  };
};
using DescriptorV1 = OlderDescriptor<CollectiveV1, PointToPointV1>;
using DescriptorV2 = OlderDescriptor<CollectiveV2, PointToPointV2>;
using DescriptorV3 = OlderDescriptor<CollectiveV3, PointToPointV2>;
static_assert(sizeof(DescriptorV1) == 120 && sizeof(DescriptorV2) == 128 && sizeof(DescriptorV3) == 120);
static_assert(offsetof(DescriptorV3, coll) == 24);

/// v1 has numbers of ncclFunc_t and ncclDataType_t.
inline const char* text_of_function(const char* text) { return text; }
inline const char* text_of_function(std::uint8_t number) {
  constexpr std::array kNames = {"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                 "AllReduce", "SendRecv", "Send",      "Recv"};
  return number < kNames.size() ? kNames[number] : nullptr;
}
inline const char* text_of_datatype(const char* text) { return text; }
inline const char* text_of_datatype(std::uint8_t number) {
  constexpr std::array kNames = {"ncclInt8",    "ncclUint8",    "ncclInt32",      "ncclUint32",
                                 "ncclInt64",   "ncclUint64",   "ncclFloat16",    "ncclFloat32",
                                 "ncclFloat64", "ncclBfloat16", "ncclFloat8e4m3", "ncclFloat8e5m2"};
  return number < kNames.size() ? kNames[number] : nullptr;
}
inline const char* text_or_null(const char* text) { return text; }
inline const char* text_or_null(std::uint8_t) { return nullptr; }

/// The event as v5 describes it. A kernel has no timer.
template <typename Older>
Descriptor<std::uint64_t> newer(const Older& older) {
  Descriptor<std::uint64_t> event{};
  event.type = older.type;
  event.parentObj = older.parentObj;
  event.rank = older.rank;
  switch (older.type) {
    case abi::kProfileColl:
      event.coll.seqNumber = older.coll.seqNumber;
      event.coll.func = text_of_function(older.coll.func);
      event.coll.count = older.coll.count;
      event.coll.root = older.coll.root;
      event.coll.datatype = text_of_datatype(older.coll.datatype);
      event.coll.nChannels = older.coll.nMaxChannels;
      event.coll.algo = text_or_null(older.coll.algo);
      event.coll.proto = text_or_null(older.coll.proto);
      break;
    case abi::kProfileP2p:
      event.p2p.func = text_of_function(older.p2p.func);
      event.p2p.count = older.p2p.count;
      event.p2p.datatype = text_of_datatype(older.p2p.datatype);
      event.p2p.peer = older.p2p.peer;
      break;
    case abi::kProfileProxyOp:
      event.proxyOp = older.proxyOp;
      break;
    case abi::kProfileProxyStep:
      event.proxyStep = older.proxyStep;
      break;
    case abi::kProfileKernelCh:
      event.kernelCh.channelId = older.channel;
      break;
    case abi::kProfileNetPlugin:
      event.netPlugin = older.netPlugin;
      break;
    default:
      break;
  }
  return event;
}

}  // namespace plugfest::trace
