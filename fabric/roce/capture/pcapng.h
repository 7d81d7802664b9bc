// Packets as pcapng blocks.
// Source: draft-ietf-opsawg-pcapng.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fabric/roce/address.h"

namespace plugfest::roce {

/// What the IP and UDP headers of a packet say; ports in host order.
struct WireHeaders {
  Address source;
  Address destination;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint16_t identification = 0;  ///< of IPv4
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
};

/// Appends the blocks that every section begins with: its header, and one interface whose packets begin with the IP
/// header and whose times are nanoseconds.
void add_section(std::vector<std::byte>& blocks, std::string_view interface);

/// Appends one packet. `time_ns`: since 1970. `payload`: of UDP, in pieces. `comment`: may be empty.
void add_packet(std::vector<std::byte>& blocks, std::uint64_t time_ns, bool outbound, const WireHeaders& headers,
                std::span<const iovec> payload, std::string_view comment);

}  // namespace plugfest::roce
