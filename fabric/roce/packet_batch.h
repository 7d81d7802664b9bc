// Packets of one queue pair that leave by one system call.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/departures.h"
#include "fabric/roce/wire.h"

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
  std::array<std::array<std::byte, kMaxHeaderBytes>, kMaxSegments> headers_;
  std::array<std::array<std::byte, kMaxTrailerBytes>, kMaxSegments> trailers_;
};

}  // namespace plugfest::roce
