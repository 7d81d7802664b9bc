// The part of NCCL's interface that the harness calls, and the library that provides it. Source: nccl.h of NCCL 2.28.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>

#include "harness/nccl/device/device_comm_2_28.h"

namespace plugfest::nccl {

using device::v2_28::DeviceComm;
using device::v2_28::DeviceCommRequirements;
using device::v2_28::Window;

/// ncclUniqueId.
struct UniqueId {
  std::array<char, 128> bytes;
};

using Comm = void*;

/// ncclConfig_t as NCCL 2.14 has it, whose calls do not block; later releases accept it.
struct NonBlockingConfig {
  std::size_t size = sizeof(NonBlockingConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

/// Results that the harness distinguishes.
inline constexpr int kOk = 0;
inline constexpr int kInvalidUsage = 5;
inline constexpr int kInProgress = 7;

/// The functions ncclXxx: X(result, Xxx, parameters). Numbers of types and operators are NCCL's.
#define PLUGFEST_NCCL_FUNCTIONS(X)                                                                \
  X(int, GetVersion, int*)                                                                        \
  X(const char*, GetErrorString, int)                                                             \
  X(int, GetUniqueId, UniqueId*)                                                                  \
  X(int, CommInitRank, Comm*, int ranks, UniqueId, int rank)                                      \
  X(int, CommInitRankConfig, Comm*, int ranks, UniqueId, int rank, NonBlockingConfig*)            \
  X(int, CommDestroy, Comm)                                                                       \
  X(int, CommAbort, Comm)                                                                         \
  X(int, CommSplit, Comm, int color, int key, Comm*, void* config)                                \
  X(int, CommCount, Comm, int*)                                                                   \
  X(int, CommUserRank, Comm, int*)                                                                \
  X(int, CommGetAsyncError, Comm, int*)                                                           \
  X(int, GroupStart)                                                                              \
  X(int, GroupEnd)                                                                                \
  X(int, AllReduce, const void*, void*, std::size_t, int type, int op, Comm, void* stream)        \
  X(int, AllGather, const void*, void*, std::size_t, int type, Comm, void* stream)                \
  X(int, ReduceScatter, const void*, void*, std::size_t, int type, int op, Comm, void* stream)    \
  X(int, Broadcast, const void*, void*, std::size_t, int type, int root, Comm, void* stream)      \
  X(int, Reduce, const void*, void*, std::size_t, int type, int op, int root, Comm, void* stream) \
  X(int, Send, const void*, std::size_t, int type, int peer, Comm, void* stream)                  \
  X(int, Recv, void*, std::size_t, int type, int peer, Comm, void* stream)                        \
  X(int, MemAlloc, void**, std::size_t)                                                           \
  X(int, MemFree, void*)                                                                          \
  X(int, CommWindowRegister, Comm, void*, std::size_t, Window**, int flags)                       \
  X(int, CommWindowDeregister, Comm, Window*)                                                     \
  X(int, DevCommCreate, Comm, const DeviceCommRequirements*, DeviceComm*)                         \
  X(int, DevCommDestroy, Comm, const DeviceComm*)

/// Pointers to the functions.
struct Api {
#define PLUGFEST_MEMBER(result, name, ...) result (*name)(__VA_ARGS__);
  PLUGFEST_NCCL_FUNCTIONS(PLUGFEST_MEMBER)
#undef PLUGFEST_MEMBER
};

/// The variable with the path of libnccl-profiler-plugfest.so, if it records the calls of net plugins.
inline constexpr const char* kRecorderVariable = "PLUGFEST_NCCL_RECORDER";

/// Loads libnccl.so.2 and redirects its CUDA runtime to the stand-ins. From then on NCCL runs on the CPU. Call it once.
/// Errors: plugin::LoadError with one line, for a missing, stripped or unknown library.
const Api& open_nccl();

// Sends the calls of a CUDA runtime that is linked into a file to the stand-ins.

/// `functions`: the functions of the runtime, loaded in this process, by name. Functions without a stand-in get a trap.
/// Errors: plugin::LoadError. No other thread may call the functions at the same time.
void redirect_runtime(const std::map<std::string, void*>& functions);

}  // namespace plugfest::nccl
