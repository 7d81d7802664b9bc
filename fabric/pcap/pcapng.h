// Writes pcapng blocks: the one place that knows the file format.
// Source: draft-ietf-opsawg-pcapng.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace plugfest::pcap {

/// What the bytes of a packet begin with (https://www.tcpdump.org/linktypes.html).
enum class LinkType : std::uint16_t {
  kEthernet = 1,  ///< an Ethernet header
  kRaw = 101,     ///< an IPv4 or IPv6 header
};

enum class Direction : std::uint32_t { kUnknown = 0, kInbound = 1, kOutbound = 2 };

/// The type of the first block of a file, in the byte order of the machine that wrote it.
inline constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a;

/// Appends the header of a section of unknown length. The interfaces of the section follow it.
void add_section(std::vector<std::byte>& blocks);

/// Appends an interface of the section, numbered from 0 in the order of these calls. Times of its packets are
/// nanoseconds. `snap_length`: the longest packet in bytes; 0 for no limit.
void add_interface(std::vector<std::byte>& blocks, std::string_view name, LinkType type, std::uint32_t snap_length = 0);

/// What a packet block says about its packet.
struct PacketInfo {
  std::uint32_t interface = 0;
  std::uint64_t time_ns = 0;  ///< since 1970
  Direction direction = Direction::kUnknown;
  std::string_view comment = {};
};

/// Appends one packet, whose bytes are the concatenation of `pieces`.
void add_packet(std::vector<std::byte>& blocks, const PacketInfo& info, std::span<const iovec> pieces);

}  // namespace plugfest::pcap
