// One direction of a connection between a kernel and the proxy of a network plugin, or a kernel of the same host.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace plugfest::nccl::device {

/// As NCCL numbers them.
enum class Protocol { kLowLatency = 0, kLowLatency128 = 1, kSimple = 2 };

/// Number of steps, buffers of equal size, in the fifo of a connection.
inline constexpr std::uint64_t kSteps = 8;

/// Entry of the fifo of sizes, by which a kernel tells the proxy the size of a step, and the proxy the kernel where the
/// step's buffer is. Source: NCCL, ncclConnFifo.
struct StepInfo {
  /// `mode`: the buffer of the step is at `offset`, not at its place in the ring of buffers.
  static constexpr int kOffset = 1;
  int mode;
  int offset;
  ssize_t size;
  void* pointer;
};

/// 16 bytes of the LL protocol: each 8 bytes are written at once and contain 4 bytes of data and their flag.
struct Line {
  std::uint64_t halves[2];
};

/// The connection as a kernel sees it. All pointers belong to NCCL.
struct Connection {
  std::byte* simple_buffer = nullptr;
  Line* line_buffer = nullptr;
  std::uint64_t* tail = nullptr;        ///< number of steps that the sender has filled
  std::uint64_t* head = nullptr;        ///< number of steps that the receiver has emptied
  StepInfo* steps = nullptr;            ///< kSteps entries; null between kernels
  std::size_t step_bytes = 0;           ///< distance of the steps in `simple_buffer`
  std::uint64_t* saved_step = nullptr;  ///< where the step is kept between kernels
};

inline std::uint64_t load(const std::uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
inline void store(std::uint64_t* word, std::uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

}  // namespace plugfest::nccl::device
