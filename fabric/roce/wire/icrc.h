// The invariant CRC of RoCEv2 packets.
//
// It covers the IPv4 identification, which a UDP socket can neither set nor read. On an unconnected socket with DF set,
// a sender knows it: the kernel uses identification 0 for a single packet and i for segment i of a GSO batch. Packets
// of other senders (hardware, the kernel's rxe) have any identification. The CRC is linear, so a receiver computes it
// for 0 and accepts a packet if some identification causes exactly the difference to the packet's CRC. Source:
// InfiniBand Architecture Specification vol. 1, Annex A17.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fabric/roce/wire/address.h"

namespace plugfest::roce {

/// Source and destination of a packet; ports in host order.
struct Flow {
  Address source = {};
  Address destination = {};
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
};

/// CRC-32 as in zlib (reflected 0x04c11db7, complemented before and after), continued from `crc`; start with 0.
std::uint32_t crc32(std::uint32_t crc, const std::byte* bytes, std::size_t count);

/// The CRC over the masked IP and UDP headers and the packet's own headers. Continue it with payload and pad by
/// crc32(); the result is sent least significant byte first. `headers`: the packet's headers from the BTH on, kBthBytes
/// ≤ `header_bytes` ≤ kMaxHeaderBytes. `udp_payload_bytes`: the whole packet with its ICRC. `identification`: IPv4
/// only.
std::uint32_t start_icrc(const Flow& flow, std::uint16_t identification, std::size_t udp_payload_bytes,
                         const std::byte* headers, std::size_t header_bytes);

/// The XOR of a packet's ICRC and the right one for this identification; 0 if the packet's ICRC is right. `packet`:
/// UDP payload of at least kBthBytes + kIcrcBytes.
std::uint32_t icrc_difference(const Flow& flow, std::uint16_t identification, std::span<const std::byte> packet);

/// Finds the IPv4 identification that explains an ICRC difference. Not thread-safe: it caches a basis per packet
/// length.
class IdentificationSpan {
 public:
  /// Whether some identification causes this difference. `udp_payload_bytes`: a multiple of 4, at most
  /// kMaxPacketBytes.
  bool explains(std::uint32_t difference, std::size_t udp_payload_bytes) {
    return difference == 0 || bits_for(difference, udp_payload_bytes).has_value();
  }

  /// The XOR of the packet's identification and the one used to compute `difference`. nullopt if no identification
  /// explains the difference.
  std::optional<std::uint16_t> bits_for(std::uint32_t difference, std::size_t udp_payload_bytes);

 private:
  /// A reduced basis over GF(2): the pivot bit of each vector is set in no other vector.
  struct Basis {
    std::array<std::uint32_t, 16> vectors;
    std::array<std::uint32_t, 16> pivots;
    std::array<std::uint16_t, 16> bits;  ///< identification bits that produce the vector
  };
  static std::unique_ptr<Basis> make_basis(std::size_t udp_payload_bytes);

  std::vector<std::unique_ptr<Basis>> by_length_;
};

}  // namespace plugfest::roce
