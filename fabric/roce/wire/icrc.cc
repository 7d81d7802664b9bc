// Computes invariant CRCs with ISA-L, which uses the processor's vector units.
#include "fabric/roce/wire/icrc.h"

#include <isa-l/crc.h>

#include <cstring>

#include "fabric/roce/wire/wire.h"
#include "fabric/system/processor.h"

namespace plugfest::roce {
namespace {

constexpr std::size_t kMaskedLrhBytes = 8;
constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kIpv6Bytes = 40;
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kMaxPseudoBytes = kMaskedLrhBytes + kIpv6Bytes + kUdpBytes;

void put16(std::uint8_t* at, std::size_t value) {
  at[0] = static_cast<std::uint8_t>(value >> 8);
  at[1] = static_cast<std::uint8_t>(value);
}

// Both write an IP header with masked fields and return its length.
std::size_t put_ipv4(std::uint8_t* ip, const Flow& flow, std::uint16_t identification, std::size_t udp_bytes) {
  ip[0] = 0x45;
  ip[1] = 0xff;  // type of service, masked
  put16(ip + 2, kIpv4Bytes + udp_bytes);
  put16(ip + 4, identification);
  ip[6] = 0x40;  // don't fragment
  ip[7] = 0;
  ip[8] = 0xff;  // time to live, masked
  ip[9] = IPPROTO_UDP;
  ip[10] = ip[11] = 0xff;  // checksum, masked
  std::memcpy(ip + 12, flow.source.bytes.data() + 12, 4);
  std::memcpy(ip + 16, flow.destination.bytes.data() + 12, 4);
  return kIpv4Bytes;
}

std::size_t put_ipv6(std::uint8_t* ip, const Flow& flow, std::size_t udp_bytes) {
  ip[0] = 0x6f;  // traffic class and flow label, masked
  ip[1] = ip[2] = ip[3] = 0xff;
  put16(ip + 4, udp_bytes);
  ip[6] = IPPROTO_UDP;
  ip[7] = 0xff;  // hop limit, masked
  std::memcpy(ip + 8, flow.source.bytes.data(), 16);
  std::memcpy(ip + 24, flow.destination.bytes.data(), 16);
  return kIpv6Bytes;
}

}  // namespace

std::uint32_t crc32(std::uint32_t crc, const std::byte* bytes, std::size_t count) {
  const std::uint32_t result = crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes), count);
  clear_upper_vector_halves();
  return result;
}

std::uint32_t start_icrc(const Flow& flow, std::uint16_t identification, std::size_t udp_payload_bytes,
                         const std::byte* headers, std::size_t header_bytes) {
  std::array<std::uint8_t, kMaxPseudoBytes + kMaxHeaderBytes> bytes;
  const std::size_t udp_bytes = kUdpBytes + udp_payload_bytes;
  std::memset(bytes.data(), 0xff, kMaskedLrhBytes);
  std::uint8_t* const ip = bytes.data() + kMaskedLrhBytes;
  std::uint8_t* const udp =
      ip + (flow.source.is_ipv4() ? put_ipv4(ip, flow, identification, udp_bytes) : put_ipv6(ip, flow, udp_bytes));
  put16(udp, flow.source_port);
  put16(udp + 2, flow.destination_port);
  put16(udp + 4, udp_bytes);
  udp[6] = udp[7] = 0xff;  // checksum, masked
  std::uint8_t* const bth = udp + kUdpBytes;
  std::memcpy(bth, headers, header_bytes);
  bth[4] = 0xff;  // FECN, BECN and reserved bits, masked
  return crc32(0, reinterpret_cast<const std::byte*>(bytes.data()),
               static_cast<std::size_t>(bth - bytes.data()) + header_bytes);
}

std::uint32_t icrc_difference(const Flow& flow, std::uint16_t identification, std::span<const std::byte> packet) {
  const std::size_t covered = packet.size() - kIcrcBytes;
  std::uint32_t difference = start_icrc(flow, identification, packet.size(), packet.data(), kBthBytes);
  difference = crc32(difference, packet.data() + kBthBytes, covered - kBthBytes);
  for (std::size_t i = 0; i < kIcrcBytes; ++i) difference ^= static_cast<std::uint32_t>(packet[covered + i]) << (8 * i);
  return difference;
}

std::unique_ptr<IdentificationSpan::Basis> IdentificationSpan::make_basis(std::size_t udp_payload_bytes) {
  // All bytes from the identification to the end of the payload, without the ICRC.
  std::vector<std::byte> bytes(kIpv4Bytes - 4 + kUdpBytes + udp_payload_bytes - kIcrcBytes);
  const std::uint32_t of_zero = crc32(0, bytes.data(), bytes.size());
  auto basis = std::make_unique<Basis>();
  for (std::size_t bit = 0; bit < 16; ++bit) {
    bytes[bit / 8] = std::byte{static_cast<std::uint8_t>(1u << (bit % 8))};
    std::uint32_t vector = crc32(0, bytes.data(), bytes.size()) ^ of_zero;
    std::uint16_t bits = static_cast<std::uint16_t>(1u << (bit < 8 ? bit + 8 : bit - 8));
    bytes[bit / 8] = std::byte{0};
    for (std::size_t i = 0; i < bit; ++i)
      if ((vector & basis->pivots[i]) != 0) {
        vector ^= basis->vectors[i];
        bits ^= basis->bits[i];
      }
    // Never 0: a CRC-32 distinguishes all values of 16 adjacent bits.
    const std::uint32_t pivot = std::bit_floor(vector);
    for (std::size_t i = 0; i < bit; ++i)
      if ((basis->vectors[i] & pivot) != 0) {
        basis->vectors[i] ^= vector;
        basis->bits[i] ^= bits;
      }
    basis->vectors[bit] = vector;
    basis->pivots[bit] = pivot;
    basis->bits[bit] = bits;
  }
  return basis;
}

std::optional<std::uint16_t> IdentificationSpan::bits_for(std::uint32_t difference, std::size_t udp_payload_bytes) {
  const std::size_t index = udp_payload_bytes / 4;
  if (index >= by_length_.size()) by_length_.resize(index + 1);
  if (!by_length_[index]) by_length_[index] = make_basis(udp_payload_bytes);
  const Basis& basis = *by_length_[index];
  std::uint16_t bits = 0;
  for (std::size_t i = 0; i < basis.vectors.size(); ++i) {
    if ((difference & basis.pivots[i]) == 0) continue;
    difference ^= basis.vectors[i];
    bits ^= basis.bits[i];
  }
  return difference == 0 ? std::optional(bits) : std::nullopt;
}

}  // namespace plugfest::roce
