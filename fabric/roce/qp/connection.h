// Attributes of a queue pair: its settings, what requester and responder share, and its path.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/port/port_set.h"
#include "fabric/roce/port/transmit_path.h"
#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/qp/nic_context.h"
#include "fabric/roce/wire/address.h"

namespace plugfest::roce {

class CompletionQueue;
class ProtectionDomain;
class QueuePair;
class ReceiveQueue;

/// Attributes of a new queue pair, as in ibv_qp_init_attr.
struct QueuePairSettings {
  ibv_qp_type type = IBV_QPT_RC;
  CompletionQueue* send_queue = nullptr;
  CompletionQueue* receive_queue = nullptr;
  ReceiveQueue* shared_receives = nullptr;  ///< null: the queue pair has its own receive queue
  const void* extended_domain = nullptr;    ///< IBV_QPT_XRC_RECV: ExtendedReceives::extended_domain
  ibv_qp_cap capabilities = {};             ///< requested capabilities
  bool signal_all = false;                  ///< sq_sig_all
  bool blocks_own_multicast = false;        ///< IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
  /// Gets IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST,
  /// IBV_EVENT_SQ_DRAINED, IBV_EVENT_QP_LAST_WQE_REACHED. Called with locks of the NIC held: it must not call the
  /// NIC. May be null.
  void (*async)(void* context, ibv_event_type event) = nullptr;
  void* context = nullptr;
};

/// What requester and responder share; set by QueuePair. Guarded by the NIC's lock.
struct Connection {
  const DataPath nic;
  QueuePair& queue_pair;
  const ProtectionDomain& domain;
  std::uint32_t number = 0;         ///< number of this queue pair
  std::uint32_t remote_number = 0;  ///< number of the peer's queue pair
  std::uint32_t path_mtu_bytes = 0;
  unsigned access = 0;      ///< rights of the peer, ibv_access_flags
  std::uint32_t q_key = 0;  ///< datagram queue pairs only
  Transport transport = Transport::kReliable;
  const void* extended_domain = nullptr;  ///< as in QueuePairSettings
  Path path = {};
};

/// A checked address vector, which says where packets go.
struct Destination {
  Address local;
  Address remote;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;

  friend bool operator==(const Destination&, const Destination&) = default;
};

/// Checks an address vector. nullopt if it has no GID, a port other than 1, an unknown local GID index, or a remote GID
/// of another address family than the local one. With the NIC's lock.
std::optional<Destination> destination_of(const ibv_ah_attr& attributes, const PortSet& ports);

/// The path of a queue pair's packets. With the NIC's lock. Errors: std::system_error if the UDP port of the local
/// address cannot be opened.
Path path_to(const Destination& destination, PortSet& ports, std::uint32_t queue_pair_number);

/// The object behind the `ibv_ah` of a datagram's work request.
struct AddressHandle : ibv_ah {
  /// Errors: std::system_error with EINVAL for an invalid address vector.
  AddressHandle(const NicContext& nic, const ProtectionDomain& domain, const ibv_ah_attr& attributes);

  const ProtectionDomain& domain;
  const Destination destination;
};

}  // namespace plugfest::roce
