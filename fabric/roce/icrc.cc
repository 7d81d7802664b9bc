// Computes invariant CRCs with ISA-L, which uses the processor's vector units.
#include "fabric/roce/icrc.h"

#include <arpa/inet.h>
#include <isa-l/crc.h>

#include <bit>
#include <cstring>

#include "fabric/roce/wire.h"

namespace plugfest::roce {

namespace {

constexpr std::size_t kMaskedLrhBytes = 8;
constexpr std::size_t kIpBytes = 20;
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kPseudoBytes = kMaskedLrhBytes + kIpBytes + kUdpBytes;
constexpr std::size_t kIdentificationOffset = kMaskedLrhBytes + 4;

}  // namespace

std::uint32_t crc32(std::uint32_t crc, const std::byte* bytes, std::size_t count) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes), count);
}

std::uint32_t start_icrc(const Flow& flow, std::uint16_t identification, std::size_t udp_payload_bytes,
                         const std::byte* headers, std::size_t header_bytes) {
  std::array<std::uint8_t, kPseudoBytes + kMaxHeaderBytes> bytes;
  auto put16 = [&](std::size_t offset, std::size_t value) {
    bytes[offset] = static_cast<std::uint8_t>(value >> 8);
    bytes[offset + 1] = static_cast<std::uint8_t>(value);
  };
  std::memset(bytes.data(), 0xff, kMaskedLrhBytes);
  std::uint8_t* ip = bytes.data() + kMaskedLrhBytes;
  ip[0] = 0x45;
  ip[1] = 0xff;  // type of service, masked
  put16(kMaskedLrhBytes + 2, kIpBytes + kUdpBytes + udp_payload_bytes);
  put16(kIdentificationOffset, identification);
  ip[6] = 0x40;  // don't fragment
  ip[7] = 0;
  ip[8] = 0xff;  // time to live, masked
  ip[9] = IPPROTO_UDP;
  ip[10] = ip[11] = 0xff;  // checksum, masked
  std::memcpy(ip + 12, &flow.source, 4);
  std::memcpy(ip + 16, &flow.destination, 4);
  const std::size_t udp = kMaskedLrhBytes + kIpBytes;
  put16(udp, flow.source_port);
  put16(udp + 2, flow.destination_port);
  put16(udp + 4, kUdpBytes + udp_payload_bytes);
  bytes[udp + 6] = bytes[udp + 7] = 0xff;  // checksum, masked
  std::memcpy(bytes.data() + kPseudoBytes, headers, header_bytes);
  bytes[kPseudoBytes + 4] = 0xff;  // FECN, BECN and reserved bits, masked
  return crc32(0, reinterpret_cast<const std::byte*>(bytes.data()), kPseudoBytes + header_bytes);
}

std::unique_ptr<IdentificationSpan::Basis> IdentificationSpan::make_basis(std::size_t udp_payload_bytes) {
  // From the identification on: two bytes of it, the rest of the IP header, UDP, and the payload but for its ICRC.
  std::vector<std::byte> bytes(kIpBytes - 4 + kUdpBytes + udp_payload_bytes - kIcrcBytes);
  const std::uint32_t of_zero = crc32(0, bytes.data(), bytes.size());
  auto basis = std::make_unique<Basis>();
  for (std::size_t bit = 0; bit < 16; ++bit) {
    bytes[bit / 8] = std::byte{static_cast<std::uint8_t>(1u << (bit % 8))};
    std::uint32_t vector = crc32(0, bytes.data(), bytes.size()) ^ of_zero;
    bytes[bit / 8] = std::byte{0};
    for (std::size_t i = 0; i < bit; ++i)
      if ((vector & basis->pivots[i]) != 0) vector ^= basis->vectors[i];
    // Never 0: a CRC-32 tells any 16 neighbouring bits apart.
    const std::uint32_t pivot = std::bit_floor(vector);
    for (std::size_t i = 0; i < bit; ++i)
      if ((basis->vectors[i] & pivot) != 0) basis->vectors[i] ^= vector;
    basis->vectors[bit] = vector;
    basis->pivots[bit] = pivot;
  }
  return basis;
}

bool IdentificationSpan::explains(std::uint32_t difference, std::size_t udp_payload_bytes) {
  if (difference == 0) return true;
  const std::size_t index = udp_payload_bytes / 4;
  if (index >= by_length_.size()) by_length_.resize(index + 1);
  if (!by_length_[index]) by_length_[index] = make_basis(udp_payload_bytes);
  const Basis& basis = *by_length_[index];
  for (std::size_t i = 0; i < basis.vectors.size(); ++i)
    if ((difference & basis.pivots[i]) != 0) difference ^= basis.vectors[i];
  return difference == 0;
}

}  // namespace plugfest::roce
