// A batch of packets whose payload the kernel copies directly into the memory of a message.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "fabric/roce/port/placement.h"
#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

/// Describes the memory that one receive call fills. For each packet at the front of the batch the payload goes to its
/// placement, and BTH and ICRC go to memory of this object; the packets after these go to a buffer unchanged.
///
/// The packets may turn out to be others than expected, because at most the first header was read before. gather()
/// restores them in the buffer.
///
/// Not thread-safe; guarded by the NIC's lock.
class DirectBatch {
 public:
  /// Returns the parts for UdpPort::receive(). `segment_bytes`: length of a packet with BTH, payload and ICRC. `buffer`
  /// has room for UdpPort::kReceiveBytes.
  std::span<iovec> prepare(std::size_t segment_bytes, Placement placement, std::byte* buffer);

  /// Sets the length of the batch in bytes, after it was received.
  void set_length(std::size_t length) { length_ = length; }

  std::size_t packets_in_place() const { return std::min(placement_.packets, length_ / segment_bytes_); }
  std::span<const std::byte, kBthBytes> bth(std::size_t packet) const {
    return std::span<const std::byte, kBthBytes>(between_[packet].data() + kIcrcBytes, kBthBytes);
  }
  std::span<const std::byte> payload(std::size_t packet) const {
    return {placement_.memory + packet * payload_bytes_, payload_bytes_};
  }
  std::span<const std::byte, kIcrcBytes> icrc(std::size_t packet) const {
    return std::span<const std::byte, kIcrcBytes>(between_[packet + 1].data(), kIcrcBytes);
  }

  /// Copies the packets in place, beginning with number `packet`, into the buffer, where the rest of the batch follows.
  /// Returns these packets and the rest. `packet` may be packets_in_place().
  std::span<const std::byte> gather(std::size_t packet) const;

 private:
  static constexpr std::size_t kMaxPackets = 128;

  Placement placement_;
  std::size_t payload_bytes_ = 0;
  std::size_t segment_bytes_ = 0;
  std::size_t length_ = 0;
  std::byte* buffer_ = nullptr;
  /// Between two payloads: the ICRC of one packet and the BTH of the next.
  std::array<std::array<std::byte, kIcrcBytes + kBthBytes>, kMaxPackets + 1> between_;
  std::array<iovec, 2 * kMaxPackets + 2> parts_;
};

}  // namespace plugfest::roce
