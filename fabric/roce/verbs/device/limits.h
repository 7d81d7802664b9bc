// What the NIC offers, as the device attributes give it. An object whose size is beyond these fails with EINVAL, one
// too many with ENOMEM.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace plugfest::roce::verbs::limits {

inline constexpr int kWorkRequests = 16384;  ///< per send or receive queue
inline constexpr int kScatterGather = 16;
inline constexpr int kCompletionEntries = 1 << 20;
inline constexpr int kReadsInFlight = 128;
inline constexpr ibv_atomic_cap kAtomics = IBV_ATOMIC_HCA;

/// What a process can have only so many of, per device.
enum class Kind : std::size_t {
  kQueuePair,
  kCompletionQueue,
  kMemoryRegion,
  kMemoryWindow,
  kProtectionDomain,
  kAddressHandle,
  kSharedReceiveQueue,
  kKinds
};

constexpr int most(Kind kind) {
  switch (kind) {
    case Kind::kQueuePair:  // half of the numbers that a process has: what is left cannot be guessed
      return 32768;
    case Kind::kMemoryRegion:
    case Kind::kMemoryWindow:
      return 1 << 18;
    default:
      return 65536;
  }
}

/// How many of each there are now.
using Taken = std::array<std::atomic<int>, static_cast<std::size_t>(Kind::kKinds)>;

}  // namespace plugfest::roce::verbs::limits
