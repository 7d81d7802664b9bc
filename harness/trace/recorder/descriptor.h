// The descriptors of events of profiler v4 to v6. Later versions add members at the end. Source:
// include/plugin/profiler/profiler_v4.h to profiler_v6.h of NCCL 2.30.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace plugfest::trace {

/// `Type`: std::uint8_t in v4, std::uint64_t since v5. Pointers to texts may be null.
template <typename Type>
struct Descriptor {
  Type type;
  alignas(8) void* parentObj;
  int rank;
  union {
    struct {
      bool graphCaptured;
      int groupDepth;
    } groupApi;
    struct {
      const char* func;
      std::size_t count;
      const char* datatype;
      int root;
    } collApi;
    struct {
      const char* func;
      std::size_t count;
      const char* datatype;
    } p2pApi;
    struct {
      std::uint64_t seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      std::size_t count;
      int root;
      const char* datatype;
      std::uint8_t nChannels;
      std::uint8_t nWarps;
      const char* algo;
      const char* proto;
      void* parentGroup;
    } coll;
    struct {
      const char* func;
      void* buff;
      const char* datatype;
      std::size_t count;
      int peer;
      std::uint8_t nChannels;
    } p2p;
    struct {
      pid_t pid;
      std::uint8_t channelId;
      int peer;
      int nSteps;
      int chunkSize;
      int isSend;
    } proxyOp;
    struct {
      int step;
    } proxyStep;
    struct {
      std::uint8_t channelId;
      std::uint64_t pTimer;
    } kernelCh;
    struct {
      std::int64_t id;
      void* data;
    } netPlugin;
    struct {
      std::uint64_t seqNumber;
      const char* func;
      const void* sendBuff;
      void* recvBuff;
      std::size_t count;
      int root;
      const char* datatype;
    } ceColl;
  };
};
static_assert(offsetof(Descriptor<std::uint8_t>, parentObj) == 8);
static_assert(offsetof(Descriptor<std::uint64_t>, rank) == 16);
static_assert(offsetof(Descriptor<std::uint64_t>, coll) == 24);
static_assert(offsetof(Descriptor<std::uint64_t>, coll.nChannels) == 80);
static_assert(offsetof(Descriptor<std::uint64_t>, coll.algo) == 88);
static_assert(offsetof(Descriptor<std::uint64_t>, proxyOp.peer) == 32);

}  // namespace plugfest::trace
