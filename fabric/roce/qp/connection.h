// Attributes that requester and responder of a queue pair share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/roce/port/placement.h"
#include "fabric/roce/port/transmit_path.h"
#include "fabric/roce/qp/nic_context.h"

namespace plugfest::roce {

class CompletionQueue;
class ProtectionDomain;
class QueuePairEngine;

/// Set by QueuePairEngine. Guarded by the NIC's lock.
struct Connection {
  const DataPath nic;
  QueuePairEngine& queue_pair;
  const ProtectionDomain& domain;
  std::uint32_t number = 0;         ///< of this queue pair
  std::uint32_t remote_number = 0;  ///< of the peer's queue pair
  std::uint32_t path_mtu_bytes = 0;
  unsigned access = 0;      ///< rights of the peer, ibv_access_flags
  std::uint32_t q_key = 0;  ///< of a datagram queue pair
  Transport transport = Transport::kReliable;
  Path path = {};
};

}  // namespace plugfest::roce
