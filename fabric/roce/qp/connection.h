// What both halves of a queue pair know about it and about its peer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/roce/port/transmit_path.h"
#include "fabric/roce/port/placement.h"
#include "fabric/roce/qp/nic_context.h"

namespace plugfest::roce {

class CompletionQueue;
class ProtectionDomain;
class QueuePairEngine;

struct Connection {
  const DataPath nic;
  QueuePairEngine& queue_pair;
  const ProtectionDomain& domain;
  std::uint32_t number = 0;         ///< of this queue pair
  std::uint32_t remote_number = 0;  ///< of the peer's
  std::uint32_t path_mtu_bytes = 0;
  unsigned access = 0;      ///< what the peer may do, ibv_access_flags
  std::uint32_t q_key = 0;  ///< of a datagram queue pair
  Transport transport = Transport::kReliable;
  Path path = {};
};

}  // namespace plugfest::roce
