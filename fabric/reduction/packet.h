// The UDP packets between ranks and aggregation nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace plugfest::reduction {

enum class PacketKind : std::uint8_t { kContribution = 1, kResult = 2 };

/// What a packet says about its payload. On the wire all numbers are big-endian.
struct PacketHeader {
  PacketKind kind = PacketKind::kContribution;
  std::uint8_t dtype = 0;  ///< sharp_datatype
  std::uint8_t op = 0;     ///< sharp_reduce_op
  bool empty = false;      ///< a contribution without payload: the sender adds nothing to the result
  std::uint16_t child = 0;
  std::uint32_t group = 0;
  std::uint32_t elements = 0;
  std::uint64_t slot = 0;
};

struct Packet : PacketHeader {
  std::span<const std::byte> payload;
};

inline constexpr std::size_t kPacketHeaderBytes = 36;

/// Writes the header before the payload of `payload_bytes` bytes that `packet` already holds at kPacketHeaderBytes.
/// Returns the size of the packet.
std::size_t write_packet(const PacketHeader& header, std::size_t payload_bytes, std::span<std::byte> packet);

/// Accepts any bytes. nullopt: not a packet, or corrupt. The payload is a part of `packet`.
std::optional<Packet> parse_packet(std::span<const std::byte> packet);

}  // namespace plugfest::reduction
