// A batch of packets that goes from the kernel straight to where its payload belongs.
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

/// Lays out the parts that one receive call fills: for each packet at the front of the batch its BTH, its payload in
/// place, and its ICRC; the packets behind those go to a buffer as they are.
///
/// What is put in place may prove to be something else than expected, since nothing but the first packet's headers was
/// looked at, if that. gather() takes it together again.
///
/// Not thread-safe; guarded by the NIC's lock.
class DirectBatch {
 public:
  /// For packets of `segment_bytes`, each a BTH, a payload and an ICRC. `placement.packets` of them, at most as many as
  /// a batch has, go to `placement.memory`. `buffer` has room for UdpPort::kReceiveBytes. Returns the parts for
  /// UdpPort::receive.
  std::span<iovec> lay_out(std::size_t segment_bytes, Placement placement, std::byte* buffer);

  /// So many bytes came.
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

  /// Copies the packets from `packet` on that are in place to where they belong in the buffer, so that all packets from
  /// there on lie in it one after the other, and returns them. `packet` may be packets_in_place().
  std::span<const std::byte> gather(std::size_t packet) const;

 private:
  static constexpr std::size_t kMostPackets = 128;

  Placement placement_;
  std::size_t payload_bytes_ = 0;
  std::size_t segment_bytes_ = 0;
  std::size_t length_ = 0;
  std::byte* buffer_ = nullptr;
  /// Between two payloads: the ICRC of one packet and the BTH of the next.
  std::array<std::array<std::byte, kIcrcBytes + kBthBytes>, kMostPackets + 1> between_;
  std::array<iovec, 2 * kMostPackets + 2> parts_;
};

}  // namespace plugfest::roce
