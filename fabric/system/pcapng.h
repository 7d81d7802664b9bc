// The pcapng file format. Source: draft-ietf-opsawg-pcapng.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace plugfest::pcapng {

/// The first header of a packet (https://www.tcpdump.org/linktypes.html).
enum class LinkType : std::uint16_t {
  kEthernet = 1,  ///< Ethernet
  kRaw = 101,     ///< IPv4 or IPv6
};

enum class Direction : std::uint32_t { kUnknown = 0, kInbound = 1, kOutbound = 2 };

/// Type of the first block of a file, in host byte order.
inline constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a;

/// Appends a section header block, with unspecified section length. Each section needs its own interface blocks.
void add_section(std::vector<std::byte>& blocks);

/// Appends an interface description block. Interfaces of a section are numbered from 0. Time stamps have a resolution
/// of 1 ns. `snap_length`: maximum captured bytes per packet; 0 for no limit.
void add_interface(std::vector<std::byte>& blocks, std::string_view name, LinkType type, std::uint32_t snap_length = 0);

/// Attributes of a packet.
struct PacketInfo {
  std::uint32_t interface = 0;  ///< number in the section
  std::uint64_t time_ns = 0;    ///< since 1970-01-01 UTC
  Direction direction = Direction::kUnknown;
  std::string_view comment = {};
  std::uint32_t snap_length = 0;  ///< maximum captured bytes; 0 for no limit
};

/// Appends an enhanced packet block. The packet is the concatenation of `pieces`.
void add_packet(std::vector<std::byte>& blocks, const PacketInfo& info, std::span<const iovec> pieces);

}  // namespace plugfest::pcapng
