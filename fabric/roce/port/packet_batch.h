// Packets of one queue pair that leave by one system call.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/port/departures.h"
#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

/// Collects packets and sends them as one GSO batch: all of the same length, but for a shorter last one. A packet that
/// does not fit sends what was collected before it. Payload is not copied: the memory must stay until flush().
///
/// Not thread-safe; guarded by the NIC's lock. Whoever adds packets flushes before another queue pair may add.
class PacketBatch {
 public:
  PacketBatch(Counters& counters, Departures& departures) : counters_(counters), departures_(departures) {}

  /// Adds a packet; its padding (whatever `headers` says of it) and ICRC come by themselves. `payload_bytes` is the sum
  /// over `payload`. Returns false if the batch before it had to go first and the kernel had no room: then that batch
  /// is discarded, this packet is not added, and the caller begins again from the batch's first packet later.
  bool add(const Path& path, const Headers& headers, std::span<const iovec> payload, std::size_t payload_bytes);

  /// Sends what was collected. Returns false if the kernel has no room: then it is discarded, and the socket is marked
  /// as blocked. Any other failure to send counts as a packet lost on the way.
  bool flush();

  /// Whether add() would put a packet of so many bytes, without payload, behind those collected, so that it costs no
  /// call of its own and cannot fail.
  bool takes_along(const Path& path, std::size_t packet_bytes) const {
    return count_ > 0 && !departures_.faults().any() && has_room_for(path, packet_bytes, 0);
  }

  /// Packets collected.
  std::size_t count() const { return count_; }

 private:
  static constexpr std::size_t kMaxSegments = 64;
  static constexpr std::size_t kMaxBytes = 65535 - 28;
  static constexpr std::size_t kMaxParts = 512;
  static constexpr std::size_t kMaxTrailerBytes = 3 + kIcrcBytes;

  DepartingBatch collected() const {
    return {.path = *path_,
            .parts = {parts_.data(), parts_count_},
            .packets = count_,
            .segment_bytes = segment_bytes_,
            .total_bytes = total_bytes_};
  }
  bool has_room_for(const Path& path, std::size_t packet_bytes, std::size_t pieces) const {
    return !closed_ && packet_bytes <= segment_bytes_ && count_ < kMaxSegments &&
           total_bytes_ + packet_bytes <= kMaxBytes && parts_count_ + pieces + 2 <= kMaxParts && path_ == &path &&
           !departures_.one_by_one();
  }
  void append(std::size_t bytes);
  void clear();

  Counters& counters_;
  Departures& departures_;
  const Path* path_ = nullptr;
  std::size_t count_ = 0;
  std::size_t segment_bytes_ = 0;
  std::size_t total_bytes_ = 0;
  bool closed_ = false;  ///< by a packet shorter than the others
  std::size_t parts_count_ = 0;
  std::array<iovec, kMaxParts> parts_;
  /// What stands between payloads: the pad and ICRC of one packet and the headers of the next, which are one part.
  std::array<std::byte, kMaxSegments*(kMaxHeaderBytes + kMaxTrailerBytes)> between_;
  std::size_t between_bytes_ = 0;
};

}  // namespace plugfest::roce
