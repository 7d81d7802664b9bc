// The state that the kernel keeps for an rdma_cm_id.
#pragma once

#include <rdma/rdma_user_cm.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/rdma_cm/channel.h"
#include "fabric/rdma_cm/devices.h"
#include "fabric/rdma_cm/message.h"
#include "fabric/rdma_cm/poller.h"
#include "fabric/rdma_cm/ports.h"
#include "fabric/rdma_cm/stream.h"

namespace plugfest::rdma_cm {

/// The queue key of datagram services, RDMA_UDP_QKEY of rdma/rdma_cma.h.
inline constexpr std::uint32_t kDatagramQkey = 0x01234567;

/// The hop limit of packets between hosts.
inline constexpr std::uint8_t kHopLimit = 64;

/// The states of an identifier, as in the kernel's cma.c.
enum class State {
  kIdle,
  kBound,
  kAddressResolved,
  kRouteResolved,
  kListening,
  kConnecting,  ///< active side: until the peer answers
  kResponded,   ///< active side: until the program has moved its queue pair
  kRequested,   ///< passive side: until the program accepts or rejects
  kAccepting,   ///< passive side: until the peer is ready
  kEstablished,
  kDisconnecting,  ///< until the peer has closed its half
  kClosed,
};

/// The addresses of an identifier, and the device that has the local one.
struct Route {
  Endpoint local, remote;
  int interface = 0;  ///< the scope of link-local addresses
  std::optional<LocalDevice> device;
  std::uint8_t traffic_class = 0;
  /// The timeout of a queue pair as in ibv_qp_attr. The kernel computes 18 and more, which suits large networks; 14 is
  /// 67 ms.
  std::uint8_t ack_timeout = 14;
};

/// The ports of a listener, and the requests that wait there.
struct Listening {
  std::vector<std::unique_ptr<BoundPort>> ports;
  int backlog = 0;
  int waiting = 0;  ///< requests that the program has neither accepted nor rejected
};

/// Both sides of a connection.
struct Connection {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Timer> retry;  ///< active side: sends the request again
  Message own, peer;             ///< what each side sent last
  std::uint32_t listener = 0;    ///< passive side: the identifier that got the request
  int attempts = 0;              ///< active side: requests that have been sent
};

/// A multicast group that a program has joined through an identifier.
struct Membership {
  std::uint64_t uid = 0;  ///< the program's name for it
  std::uint32_t events_reported = 0;
};

struct Identifier {
  std::uint32_t handle = 0;
  std::uint64_t uid = 0;  ///< the program's name for it; 0 on the passive side until the program accepts
  Channel* channel = nullptr;
  std::uint16_t port_space = 0;
  std::uint8_t qp_type = 0;
  State state = State::kIdle;
  std::uint32_t events_reported = 0;
  Route route;
  Listening listening;
  Connection connection;
  std::map<std::uint32_t, Membership> memberships;  ///< by handle

  bool is_datagram() const { return rdma_cm::is_datagram(port_space); }
};

/// The attributes with which a queue pair moves to `state` (ibv_qp_state), and their mask. Errors: std::system_error
/// with EINVAL, as in the kernel, if the identifier has no device, or in another state than INIT no connection.
ib_uverbs_qp_attr queue_pair_attributes(const Identifier& identifier, std::uint32_t state);

/// The address vector that leads from the identifier's device to `destination`.
ib_uverbs_ah_attr address_vector(const Identifier& identifier, const Address& destination);

}  // namespace plugfest::rdma_cm
