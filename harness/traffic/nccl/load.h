// The part of NCCL's interface that the harness calls, and the library that provides it. Source: nccl.h of NCCL 2.28.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace plugfest::nccl {

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
inline constexpr int kInProgress = 7;

/// Pointers to the functions of the same name, ncclXxx. Numbers of types and operators are NCCL's.
struct Api {
  int (*GetVersion)(int*);
  const char* (*GetErrorString)(int);
  int (*GetUniqueId)(UniqueId*);
  int (*CommInitRank)(Comm*, int ranks, UniqueId, int rank);
  int (*CommInitRankConfig)(Comm*, int ranks, UniqueId, int rank, NonBlockingConfig*);
  int (*CommDestroy)(Comm);
  int (*CommAbort)(Comm);
  int (*CommSplit)(Comm, int color, int key, Comm*, void* config);
  int (*CommCount)(Comm, int*);
  int (*CommUserRank)(Comm, int*);
  int (*CommGetAsyncError)(Comm, int*);
  int (*GroupStart)();
  int (*GroupEnd)();
  int (*AllReduce)(const void*, void*, std::size_t, int type, int op, Comm, void* stream);
  int (*AllGather)(const void*, void*, std::size_t, int type, Comm, void* stream);
  int (*ReduceScatter)(const void*, void*, std::size_t, int type, int op, Comm, void* stream);
  int (*Broadcast)(const void*, void*, std::size_t, int type, int root, Comm, void* stream);
  int (*Reduce)(const void*, void*, std::size_t, int type, int op, int root, Comm, void* stream);
  int (*Send)(const void*, std::size_t, int type, int peer, Comm, void* stream);
  int (*Recv)(void*, std::size_t, int type, int peer, Comm, void* stream);
};

/// Loads libnccl.so.2 and redirects its CUDA runtime to the stand-ins. From then on NCCL runs on the CPU. Call it once.
/// Errors: plugin::LoadError with one line, for a missing, stripped or unknown library.
const Api& open_nccl();

// Sends the calls of a CUDA runtime that is linked into a file to the stand-ins.

/// `functions`: those of the runtime, loaded in this process, by name. Functions without a stand-in get a trap.
/// Errors: plugin::LoadError. No other thread may call the functions meanwhile.
void redirect_runtime(const std::map<std::string, void*>& functions);

}  // namespace plugfest::nccl
