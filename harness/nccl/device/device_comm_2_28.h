// Structures of the device API of NCCL 2.28.9: what a program passes to ncclDevCommCreate(), and what its kernels get.
// The names are this project's, the offsets are NCCL's. Source: nccl_device/core.h, nccl_device/impl/comm__types.h,
// nccl_device/impl/core__types.h and nccl_device/gin/proxy/gin_proxy_device_host_common.h of that release.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace plugfest::nccl::device::v2_28 {

inline constexpr std::size_t kMaxGinContexts = 4;
/// Flag of ncclCommWindowRegister(): all ranks register a window of this size.
inline constexpr int kSymmetricWindow = 1;

/// ncclDevCommRequirements.
struct DeviceCommRequirements {
  void* resources = nullptr;
  void* teams = nullptr;
  bool lsa_multicast = false;
  int barriers = 0, lsa_barriers = 0, rail_gin_barriers = 0;
  int lsa_all_to_all_blocks = 0, lsa_all_to_all_slots = 0;
  bool force_gin = false;
  int gin_contexts = 0;  ///< a hint
  int gin_signals = 0;   ///< numbered from 0 on
  int gin_counters = 0;
};
static_assert(sizeof(DeviceCommRequirements) == 56 && offsetof(DeviceCommRequirements, gin_contexts) == 44 &&
              offsetof(DeviceCommRequirements, gin_signals) == 48);

/// ncclWindow_vidmem, in device memory; ncclWindow_t points to it.
struct Window {
  void* host;
  std::byte* lsa_base;
  int lsa_rank, world_rank;
  std::uint32_t stride, multicast_offset;
  std::uint32_t gin_offset;  ///< of the window in its registration, in units of 4096 bytes
  void* gin_handles[kMaxGinContexts];
};
static_assert(sizeof(Window) == 72 && offsetof(Window, gin_offset) == 32 && offsetof(Window, gin_handles) == 40);

/// ncclDevComm.
struct DeviceComm {
  int rank, ranks;
  std::uint32_t reciprocal_of_ranks;
  int lsa_rank, lsa_ranks;
  std::uint32_t reciprocal_of_lsa_ranks;
  void* windows;
  Window* resources;
  Window copy_of_resources;
  void* lsa_multicast;
  std::uint32_t lsa_barrier[2], rail_gin_barrier[2];
  std::uint8_t gin_contexts;
  std::uint8_t gin_types[kMaxGinContexts];
  void* gin_handles[kMaxGinContexts];  ///< with NCCL's proxy: GinQueues, in device memory
  std::uint32_t first_signal;
  int signals;
  std::uint32_t first_counter;
  int counters;
  std::uint64_t* signal_shadows;
};
static_assert(sizeof(DeviceComm) == 200 && offsetof(DeviceComm, gin_contexts) == 136 &&
              offsetof(DeviceComm, gin_handles) == 144 && offsetof(DeviceComm, first_signal) == 176);

/// NCCL's proxy calls the plugin (NCCL_NET_DEVICE_GIN_PROXY).
inline constexpr std::uint8_t kGinProxy = 2;

/// ncclGinProxyGfd_t: one put or signal for NCCL's proxy, which takes a word once its lowest bit is set.
using GinDescriptor = std::array<std::uint64_t, 8>;

/// ncclGinProxyGpuCtx_t: a queue of descriptors for each rank, and the words that the network changes.
struct GinQueues {
  int ranks;
  std::uint32_t length;        ///< of each queue, a power of two
  GinDescriptor* descriptors;  ///< of rank 0, of rank 1, …
  std::uint32_t* produced;     ///< by rank: descriptors that kernels have begun to write
  std::uint32_t* consumed;     ///< by rank: descriptors whose put is complete
  std::uint64_t* counters;
  std::uint64_t* signals;
};
static_assert(sizeof(GinQueues) == 48 && offsetof(GinQueues, descriptors) == 8);

}  // namespace plugfest::nccl::device::v2_28
