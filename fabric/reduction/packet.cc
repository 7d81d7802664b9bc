#include "fabric/reduction/packet.h"

#include <isa-l/crc.h>

#include <concepts>
#include <cstring>

namespace plugfest::reduction {
namespace {

constexpr std::uint32_t kMagic = 0x50465344;  // "PFSD"
constexpr std::uint8_t kVersion = 1;
constexpr std::uint8_t kEmpty = 1;
constexpr std::size_t kChecksumAt = 32;

class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}
  void put(std::unsigned_integral auto value) {
    for (int shift = 8 * (static_cast<int>(sizeof(value)) - 1); shift >= 0; shift -= 8)
      *at_++ = static_cast<std::byte>(value >> shift & 0xffu);
  }

 private:
  std::byte* at_;
};

class Reader {
 public:
  explicit Reader(const std::byte* at) : at_(at) {}
  template <std::unsigned_integral T>
  T get() {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i)
      value = static_cast<T>(static_cast<T>(value << 4 << 4) | static_cast<T>(*at_++));
    return value;
  }

 private:
  const std::byte* at_;
};

// The CRC of the header before the checksum, and of the payload.
std::uint32_t checksum(std::span<const std::byte> packet) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(packet.data());
  const std::uint32_t header = crc32_gzip_refl(0, bytes, kChecksumAt);
  return crc32_gzip_refl(header, bytes + kPacketHeaderBytes, packet.size() - kPacketHeaderBytes);
}

}  // namespace

std::size_t write_packet(const PacketHeader& header, std::size_t payload_bytes, std::span<std::byte> packet) {
  Writer writer(packet.data());
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(static_cast<std::uint8_t>(header.kind));
  writer.put(header.dtype);
  writer.put(header.op);
  writer.put(static_cast<std::uint16_t>(header.empty ? kEmpty : 0));
  writer.put(header.child);
  writer.put(header.group);
  writer.put(header.elements);
  writer.put(header.slot);
  writer.put(static_cast<std::uint32_t>(payload_bytes));
  const std::size_t size = kPacketHeaderBytes + payload_bytes;
  writer.put(checksum(packet.first(size)));
  return size;
}

std::optional<Packet> parse_packet(std::span<const std::byte> packet) {
  if (packet.size() < kPacketHeaderBytes) return std::nullopt;
  Reader reader(packet.data());
  if (reader.get<std::uint32_t>() != kMagic || reader.get<std::uint8_t>() != kVersion) return std::nullopt;
  Packet result;
  const auto kind = reader.get<std::uint8_t>();
  result.dtype = reader.get<std::uint8_t>();
  result.op = reader.get<std::uint8_t>();
  const auto flags = reader.get<std::uint16_t>();
  result.empty = flags == kEmpty;
  result.child = reader.get<std::uint16_t>();
  result.group = reader.get<std::uint32_t>();
  result.elements = reader.get<std::uint32_t>();
  result.slot = reader.get<std::uint64_t>();
  result.payload = packet.subspan(kPacketHeaderBytes);
  const auto payload_bytes = reader.get<std::uint32_t>();
  if (kind != static_cast<std::uint8_t>(PacketKind::kContribution) &&
      kind != static_cast<std::uint8_t>(PacketKind::kResult))
    return std::nullopt;
  result.kind = static_cast<PacketKind>(kind);
  if (flags > kEmpty || (result.empty && payload_bytes != 0)) return std::nullopt;
  if (payload_bytes != result.payload.size() || reader.get<std::uint32_t>() != checksum(packet)) return std::nullopt;
  return result;
}

}  // namespace plugfest::reduction
