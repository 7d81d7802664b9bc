// Operations of the send and receive proxies.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "harness/rank/workloads/replay/calls.h"
#include "harness/rank/workloads/replay/connection.h"

namespace plugfest::rank {

/// ncclProxySubArgs: one connection's part of an operation. Objects are reused for other operations, and their request
/// slots keep their values, as in NCCL.
struct ProxySub {
  ReplayEnd* end = nullptr;
  std::uint64_t nsteps = 0;
  std::uint64_t nbytes = 0;
  std::uint64_t base = 0;
  std::uint64_t posted = 0, received = 0, transmitted = 0, done = 0;
  std::uint64_t group_size = 1;
  /// Buffers of the group's last irecv.
  int posted_count = 0;
  std::array<std::uint64_t, kSteps> requests{};
  std::array<std::uint64_t, kSteps> consumable{};
  std::array<void*, kSteps> profiler_handles{};
};

/// ncclProxyArgs: one operation. `progress` is one call of the proxy's progress function.
struct ProxyOperation {
  const ReplayKernel* kernel = nullptr;
  bool sends = false;
  std::uint32_t queue = 0;
  /// NCCL_PROXY_MAX_SUBS.
  std::array<ProxySub, 64> subs;
  std::size_t nsubs = 0;
  bool ready = false;
  std::size_t finished_subs = 0;
  bool idle = true;

  bool finished() const { return finished_subs == nsubs; }
  std::uint64_t depth() const { return std::min<std::uint64_t>(kSteps, kSharedSteps / nsubs); }
  /// The place of message `posted` of sub `sub` in the pool.
  std::uint64_t pool_offset(std::size_t sub, std::uint64_t posted) const;
  /// What the first unfinished sub waits for: "message at step 12 to b.eth0 (channel 0, tag 1): isend was never
  /// accepted". "" if it waits for the GPU.
  std::string waits_for() const;
};

/// Bytes of a slot of the pool (NCCL_P2P_NET_CHUNKSIZE).
inline constexpr std::uint64_t kPoolSlot = 128 * 1024;

/// Source: NCCL 2.28.9, src/transport/net.cc, sendProxyProgress and recvProxyProgress. `limit_posted_size`: see
/// Replay. `most_buffers`: the limit of buffers of one irecv (maxRecvs). Errors: as ReplayCalls.
void progress_send(ProxyOperation& operation, ReplayCalls& calls);
void progress_receive(ProxyOperation& operation, ReplayCalls& calls, bool limit_posted_size, std::size_t most_buffers);

}  // namespace plugfest::rank
