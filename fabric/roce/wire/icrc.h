// The invariant CRC of RoCEv2 packets.
//
// It covers the IPv4 identification, which a UDP socket neither sets nor shows. A sender on an unconnected socket with
// DF knows it all the same: the kernel gives a packet identification 0, and segment i of a GSO batch i. A receiver may
// meet any (hardware, the kernel's rxe): the CRC is linear, so it computes with 0 and accepts if the difference to the
// packet's own CRC is one that 16 bits of identification can make.
// Source: InfiniBand Architecture Specification vol. 1, Annex A17.
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

/// Between which UDP endpoints a packet goes; ports in host order.
struct Flow {
  Address source = {};
  Address destination = {};
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = 0;
};

/// CRC-32 as zlib has it (reflected 0x04c11db7, complemented before and after), continued from `crc`; 0 starts.
std::uint32_t crc32(std::uint32_t crc, const std::byte* bytes, std::size_t count);

/// The CRC over the masked IP and UDP headers and the packet's own headers. Continue it with payload and pad by
/// crc32(); the result goes onto the wire least significant byte first. `headers`: from the BTH on, kBthBytes ≤
/// `header_bytes` ≤ kMaxHeaderBytes. `udp_payload_bytes`: the whole packet's, ICRC included. `identification` is IPv4's
/// alone.
std::uint32_t start_icrc(const Flow& flow, std::uint16_t identification, std::size_t udp_payload_bytes,
                         const std::byte* headers, std::size_t header_bytes);

/// By what the ICRC of a packet differs from the right one, if its identification is this; 0 if it is right. `packet`:
/// UDP payload, at least kBthBytes and an ICRC long.
std::uint32_t icrc_difference(const Flow& flow, std::uint16_t identification, std::span<const std::byte> packet);

/// Tells which differences of ICRCs an unknown identification explains. Not thread-safe: it learns lengths.
class IdentificationSpan {
 public:
  /// `udp_payload_bytes`: of the packet, a multiple of 4, at most kMaxPacketBytes.
  bool explains(std::uint32_t difference, std::size_t udp_payload_bytes) {
    return difference == 0 || bits_for(difference, udp_payload_bytes).has_value();
  }

  /// The bits of the identification that differ from those with which the difference was computed, if it is explained.
  std::optional<std::uint16_t> bits_for(std::uint32_t difference, std::size_t udp_payload_bytes);

 private:
  /// Reduced basis: each element has the highest bit of its own index range to itself.
  struct Basis {
    std::array<std::uint32_t, 16> vectors;
    std::array<std::uint32_t, 16> pivots;
    std::array<std::uint16_t, 16> bits;  ///< of the identification, that make the vector
  };
  static std::unique_ptr<Basis> make_basis(std::size_t udp_payload_bytes);

  std::vector<std::unique_ptr<Basis>> by_length_;
};

}  // namespace plugfest::roce
