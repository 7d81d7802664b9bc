// The SEND or WRITE that a responder is receiving.
#pragma once

#include <cstdint>

#include "fabric/roce/wire/wire.h"

namespace plugfest::roce {

/// Progress of one message. Not thread-safe; guarded by the NIC's lock.
struct IncomingMessage {
  enum class Kind : std::uint8_t { kNone, kSend, kWrite };

  Kind kind = Kind::kNone;
  std::uint64_t received_bytes = 0;
  std::uint64_t write_address = 0;  ///< of the next packet of a WRITE
  std::uint32_t write_key = 0;
  std::uint64_t write_left = 0;  ///< bytes of a WRITE that are still missing

  /// Takes address, key and length from the RETH of a WRITE's first packet.
  void begin_write(const Headers& headers) {
    write_address = headers.address;
    write_key = headers.key;
    write_left = headers.length;
    received_bytes = 0;
  }

  /// Advances a WRITE by the payload of one packet.
  void advance_write(std::uint64_t bytes) {
    write_address += bytes;
    write_left -= bytes;
    received_bytes += bytes;
  }
};

}  // namespace plugfest::roce
