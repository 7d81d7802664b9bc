// What the NIC offers, as the device attributes give it. Requests beyond these fail with EINVAL.
#pragma once

#include <infiniband/verbs.h>

#include <climits>

namespace plugfest::roce::verbs::limits {

inline constexpr int kQueuePairs = 65536;
inline constexpr int kWorkRequests = 16384;  ///< per send or receive queue
inline constexpr int kScatterGather = 16;
inline constexpr int kCompletionQueues = 65536;
inline constexpr int kCompletionEntries = 1 << 20;
inline constexpr int kMemoryRegions = 1 << 20;
inline constexpr int kMemoryWindows = 1 << 20;
inline constexpr int kProtectionDomains = 65536;
inline constexpr int kAddressHandles = 65536;
inline constexpr int kReadsInFlight = 128;
inline constexpr int kSharedReceiveQueues = 65536;
inline constexpr ibv_atomic_cap kAtomics = IBV_ATOMIC_HCA;

}  // namespace plugfest::roce::verbs::limits
