// The responder of a datagram queue pair (UD). It accepts messages of one packet from any sender that knows the Q_Key.
#pragma once

#include <array>
#include <cstddef>

#include "fabric/roce/qp/responder.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class DatagramResponder final : public Responder {
 public:
  using Responder::Responder;

  void receive(const Packet& packet, const Arrival& arrival) override;
};

/// The 40 bytes before a datagram in its receive, as rxe and hardware write them: the packet's IPv6 header, or 20 zero
/// bytes and its IPv4 header.
inline constexpr std::size_t kGrhBytes = 40;
std::array<std::byte, kGrhBytes> grh_of(const Arrival& arrival, std::size_t udp_payload_bytes);

}  // namespace plugfest::roce
