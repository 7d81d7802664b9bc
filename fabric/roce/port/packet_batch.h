// Batches of packets: sent with one system call, or received directly into the memory of a message.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/port/transmit_path.h"
#include "fabric/roce/port/udp_port.h"
#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

/// Collects packets and sends them as one GSO batch. All packets of a batch have the same length, except that the last
/// may be shorter. Adding a packet that does not fit sends the batch first. Payload is not copied: its memory must not
/// change until flush().
///
/// Not thread-safe; guarded by the NIC's lock. A queue pair that adds packets must call flush() before another queue
/// pair adds packets.
class PacketBatch {
 public:
  PacketBatch(Counters& counters, TransmitPath& departures) : counters_(counters), transmit_path_(departures) {}

  /// Adds a packet and computes its padding and ICRC; the pad count in `headers` is ignored. `payload_bytes` is the sum
  /// over `payload`. Returns false if the batch had to be sent first and the kernel had no room. The batch is then
  /// discarded and the new packet is not added: the caller must later start again from the first packet of the batch.
  /// Also returns false, without effects, if the program has unmapped some of the payload's memory: see unreadable().
  bool add(const Path& path, const Headers& headers, std::span<const iovec> payload, std::size_t payload_bytes);

  /// Lets `payload`, at most a path MTU, refer to a copy, for memory that may change before flush(). Returns false if
  /// the program has unmapped the memory: see unreadable().
  bool copy(iovec& payload);

  /// Whether the last call of add() or copy() has failed because of the payload's memory.
  bool unreadable() const { return unreadable_; }

  /// Sends the batch. Returns false if the kernel has no room: then the batch is discarded, and the socket is marked as
  /// blocked. Any other failure to send counts as packet loss.
  bool flush();

  /// Whether add() would append a packet of `packet_bytes` without payload to a batch that is not empty. Then the
  /// packet needs no system call of its own, and add() cannot fail.
  bool can_append(const Path& path, std::size_t packet_bytes) const {
    return count_ > 0 && !transmit_path_.faults().any() && has_room_for(path, packet_bytes, 0);
  }

  std::size_t count() const { return count_; }

  /// Whether the last packet given to add() began a batch. A packet that a fault has dropped does not.
  bool begun() const { return begun_; }

 private:
  static constexpr std::size_t kMaxSegments = 64;
  static constexpr std::size_t kMaxBytes = 65535 - 28;
  static constexpr std::size_t kMaxParts = 512;
  static constexpr std::size_t kMaxTrailerBytes = 3 + kIcrcBytes;

  OutgoingBatch collected() const {
    return {.path = *path_,
            .parts = {parts_.data(), parts_count_},
            .packets = count_,
            .segment_bytes = segment_bytes_,
            .total_bytes = total_bytes_};
  }
  bool has_room_for(const Path& path, std::size_t packet_bytes, std::size_t pieces) const {
    return !closed_ && packet_bytes <= segment_bytes_ && count_ < kMaxSegments &&
           total_bytes_ + packet_bytes <= kMaxBytes && parts_count_ + pieces + 2 <= kMaxParts && path_ == &path &&
           !transmit_path_.holds_packets();
  }
  void append(std::size_t bytes);
  void clear();

  Counters& counters_;
  TransmitPath& transmit_path_;
  const Path* path_ = nullptr;
  std::size_t count_ = 0;
  std::size_t segment_bytes_ = 0;
  std::size_t total_bytes_ = 0;
  bool closed_ = false;  ///< the last packet is shorter than the others
  bool begun_ = false;
  bool unreadable_ = false;
  std::size_t parts_count_ = 0;
  std::array<iovec, kMaxParts> parts_;
  /// The bytes between payloads. The pad and ICRC of one packet and the headers of the next form one part.
  std::array<std::byte, kMaxSegments*(kMaxHeaderBytes + kMaxTrailerBytes)> between_;
  std::size_t between_bytes_ = 0;
  /// Copied payloads, in a ring of two batches: the one that is collected never overwrites itself.
  std::unique_ptr<std::byte[]> copies_;
  std::size_t copied_bytes_ = 0;
};

/// Describes the memory that one receive call fills. For each packet at the front of the batch the payload goes to its
/// placement, and BTH and ICRC go to memory of this object; the packets after these go to a buffer unchanged.
///
/// The batch may contain other packets than expected, because at most the first header was read before. gather()
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
  /// The bytes between two payloads: the ICRC of one packet and the BTH of the next.
  std::array<std::array<std::byte, kIcrcBytes + kBthBytes>, kMaxPackets + 1> between_;
  std::array<iovec, 2 * kMaxPackets + 2> parts_;
};

}  // namespace plugfest::roce
