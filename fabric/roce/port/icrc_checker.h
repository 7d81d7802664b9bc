// Checks the ICRC of received packets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/wire/icrc.h"
#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

/// Accepts an ICRC that is right for any IPv4 identification, because a UDP socket does not report it.
///
/// Not thread-safe; guarded by the NIC's lock.
class IcrcChecker {
 public:
  /// Checks a packet in three parts: BTH, everything between BTH and ICRC, and ICRC. `index`: of the segment in its
  /// batch.
  bool is_right(std::span<const std::byte> bth, std::span<const std::byte> rest,
                std::span<const std::byte, kIcrcBytes> icrc, std::size_t index, const Arrival& arrival) {
    const Flow flow = {arrival.source.address, arrival.destination, arrival.source.port, kRoceUdpPort};
    const std::size_t bytes = bth.size() + rest.size() + kIcrcBytes;
    // Segment i of a batch that this project's NIC has sent has identification i, unless the kernel merged batches.
    std::uint32_t expected = start_icrc(flow, static_cast<std::uint16_t>(index), bytes, bth.data(), bth.size());
    expected = crc32(expected, rest.data(), rest.size());
    std::uint32_t received = 0;
    for (std::size_t i = 0; i < kIcrcBytes; ++i) received |= static_cast<std::uint32_t>(icrc[i]) << (8 * i);
    return expected == received ||
           (arrival.destination.is_ipv4() && identifications_.explains(expected ^ received, bytes));
  }

  /// Checks a whole packet, from BTH to ICRC. False too if the length is not that of a RoCE packet.
  bool is_right(std::span<const std::byte> packet, std::size_t index, const Arrival& arrival) {
    if (packet.size() < kBthBytes + kIcrcBytes || packet.size() % 4 != 0) return false;
    return is_right(packet.first(kBthBytes), packet.subspan(kBthBytes, packet.size() - kBthBytes - kIcrcBytes),
                    packet.last<kIcrcBytes>(), index, arrival);
  }

 private:
  IdentificationSpan identifications_;
};

}  // namespace plugfest::roce
