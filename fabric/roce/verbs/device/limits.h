// Limits of the NIC, as in the device attributes. Exceeding a size fails with EINVAL, exceeding a number of objects
// with ENOMEM.
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

/// Kinds of objects whose number is limited, per process and device.
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

constexpr int max_objects(Kind kind) {
  switch (kind) {
    case Kind::kQueuePair:  // half of a process's number space, so that unused numbers are hard to guess
      return 32768;
    case Kind::kMemoryRegion:
    case Kind::kMemoryWindow:
      return 1 << 18;
    default:
      return 65536;
  }
}

/// Current number of objects by kind.
using AllocationCounts = std::array<std::atomic<int>, static_cast<std::size_t>(Kind::kKinds)>;

}  // namespace plugfest::roce::verbs::limits
