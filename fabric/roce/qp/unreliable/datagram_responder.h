// The receiving half of a datagram queue pair (UD): messages of one packet from anybody who knows the Q_Key.
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

/// What precedes a datagram in its receive, as kernel and hardware have it: the packet's IPv6 header, or its IPv4
/// header in the last 20 bytes.
inline constexpr std::size_t kGrhBytes = 40;
std::array<std::byte, kGrhBytes> grh_of(const Arrival& arrival, std::size_t udp_payload_bytes);

}  // namespace plugfest::roce
