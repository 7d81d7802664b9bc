#include "fabric/roce/capture/ip_headers.h"

#include <netinet/in.h>

#include <cstring>

namespace plugfest::roce {
namespace {

std::uint16_t complement(std::uint64_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

}  // namespace

IpHeaders::IpHeaders(const WireHeaders& headers, std::span<const iovec> payload, std::size_t payload_bytes) {
  const std::size_t udp_bytes = kUdpBytes + payload_bytes;
  if (headers.source.is_ipv4())
    put_ipv4(headers, udp_bytes);
  else
    put_ipv6(headers, udp_bytes);
  const std::size_t udp = length_;
  length_ += kUdpBytes;
  put16(udp, headers.source_port);
  put16(udp + 2, headers.destination_port);
  put16(udp + 4, udp_bytes);
  if (!headers.source.is_ipv4()) put16(udp + 6, udp_checksum(payload, udp_bytes));
}

void IpHeaders::put16(std::size_t offset, std::size_t value) {
  bytes_[offset] = static_cast<std::uint8_t>(value >> 8);
  bytes_[offset + 1] = static_cast<std::uint8_t>(value);
}

std::uint64_t IpHeaders::sum(std::size_t begin, std::size_t end) const {
  std::uint64_t total = 0;
  for (std::size_t i = begin; i < end; i += 2) total += static_cast<unsigned>(bytes_[i] << 8 | bytes_[i + 1]);
  return total;
}

void IpHeaders::put_ipv4(const WireHeaders& headers, std::size_t udp_bytes) {
  const in_addr source = headers.source.ipv4(), destination = headers.destination.ipv4();
  bytes_[0] = 0x45;
  bytes_[1] = headers.traffic_class;
  put16(2, kIpv4Bytes + udp_bytes);
  put16(4, headers.identification);
  bytes_[6] = 0x40;  // don't fragment
  bytes_[8] = headers.hop_limit;
  bytes_[9] = IPPROTO_UDP;
  std::memcpy(bytes_.data() + 12, &source, 4);
  std::memcpy(bytes_.data() + 16, &destination, 4);
  put16(10, complement(sum(0, kIpv4Bytes)));
  length_ = kIpv4Bytes;
}

void IpHeaders::put_ipv6(const WireHeaders& headers, std::size_t udp_bytes) {
  put16(0, 0x6000u | static_cast<unsigned>(headers.traffic_class << 4));
  put16(4, udp_bytes);
  bytes_[6] = IPPROTO_UDP;
  bytes_[7] = headers.hop_limit;
  std::memcpy(bytes_.data() + 8, headers.source.bytes.data(), 16);
  std::memcpy(bytes_.data() + 24, headers.destination.bytes.data(), 16);
  length_ = kIpv6Bytes;
}

// Covers both addresses, length, protocol, UDP header and payload (RFC 8200, section 8.1).
std::uint16_t IpHeaders::udp_checksum(std::span<const iovec> payload, std::size_t udp_bytes) const {
  std::uint64_t total = sum(8, kIpv6Bytes + kUdpBytes) + udp_bytes + IPPROTO_UDP;
  std::size_t index = 0;
  for (const iovec& piece : payload) {
    const auto* bytes = static_cast<const std::uint8_t*>(piece.iov_base);
    for (std::size_t i = 0; i < piece.iov_len; ++i, ++index)
      total += index % 2 == 0 ? static_cast<unsigned>(bytes[i] << 8) : bytes[i];
  }
  const std::uint16_t checksum = complement(total);
  return checksum == 0 ? 0xffff : checksum;
}

}  // namespace plugfest::roce
