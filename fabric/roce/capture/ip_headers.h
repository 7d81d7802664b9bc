// Builds IP and UDP headers for capture files: the kernel does not return the headers that it sends.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fabric/roce/wire/address.h"

namespace plugfest::roce {

/// Fields of the IP and UDP headers of a packet; ports in host byte order.
struct WireHeaders {
  Address source;
  Address destination;
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
  std::uint16_t identification = 0;  ///< IPv4 only
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
};

/// The encoded headers. Over IPv4 the UDP checksum is 0, which means absent (RFC 768).
class IpHeaders {
 public:
  /// `payload`: the UDP payload, `payload_bytes` in total; needed for the UDP checksum over IPv6.
  IpHeaders(const WireHeaders& headers, std::span<const iovec> payload, std::size_t payload_bytes);

  const std::uint8_t* data() const { return bytes_.data(); }
  std::size_t size() const { return length_; }

 private:
  static constexpr std::size_t kIpv4Bytes = 20;
  static constexpr std::size_t kIpv6Bytes = 40;
  static constexpr std::size_t kUdpBytes = 8;

  void put16(std::size_t offset, std::size_t value);
  std::uint64_t sum(std::size_t begin, std::size_t end) const;
  void put_ipv4(const WireHeaders& headers, std::size_t udp_bytes);
  void put_ipv6(const WireHeaders& headers, std::size_t udp_bytes);
  std::uint16_t udp_checksum(std::span<const iovec> payload, std::size_t udp_bytes) const;

  std::array<std::uint8_t, kIpv6Bytes + kUdpBytes> bytes_ = {};
  std::size_t length_ = 0;
};

}  // namespace plugfest::roce
