#include "fabric/roce/wire/wire.h"

#include <array>
#include <bit>
#include <cstring>

namespace plugfest::roce {
namespace {

constexpr std::uint16_t kDefaultPKey = 0xffff;
constexpr std::uint16_t kPKeyMembershipMask = 0x7fff;  // full and limited members of a partition may communicate
constexpr std::uint8_t kOperationMask = 0x1f;
constexpr std::uint8_t kSolicitedBit = 0x80;
constexpr std::uint8_t kMigratedBit = 0x40;  // sent as hardware does; ignored on receipt
constexpr std::uint8_t kAckRequestBit = 0x80;
constexpr int kPadShift = 4;
constexpr std::uint32_t kBackwardBit = 1u << 30;  // BECN, in the word of the destination

constexpr std::array<OperationTraits, 32> make_traits() {
  std::array<OperationTraits, 32> table{};
  auto at = [&](Operation operation) -> OperationTraits& { return table[static_cast<std::size_t>(operation)]; };
  at(Operation::kSendFirst) = {.known = true, .request = true, .first = true, .send = true};
  at(Operation::kSendMiddle) = {.known = true, .request = true, .send = true};
  at(Operation::kSendLast) = {.known = true, .request = true, .last = true, .send = true};
  at(Operation::kSendLastImmediate) = {
      .known = true, .request = true, .last = true, .send = true, .has_immediate = true};
  at(Operation::kSendOnly) = {.known = true, .request = true, .first = true, .last = true, .send = true};
  at(Operation::kSendOnlyImmediate) = {
      .known = true, .request = true, .first = true, .last = true, .send = true, .has_immediate = true};
  at(Operation::kWriteFirst) = {.known = true, .request = true, .first = true, .write = true, .has_reth = true};
  at(Operation::kWriteMiddle) = {.known = true, .request = true, .write = true};
  at(Operation::kWriteLast) = {.known = true, .request = true, .last = true, .write = true};
  at(Operation::kWriteLastImmediate) = {
      .known = true, .request = true, .last = true, .write = true, .has_immediate = true};
  at(Operation::kWriteOnly) = {
      .known = true, .request = true, .first = true, .last = true, .write = true, .has_reth = true};
  at(Operation::kWriteOnlyImmediate) = {.known = true,
                                        .request = true,
                                        .first = true,
                                        .last = true,
                                        .write = true,
                                        .has_reth = true,
                                        .has_immediate = true};
  at(Operation::kReadRequest) = {.known = true, .request = true, .first = true, .last = true, .has_reth = true};
  at(Operation::kReadResponseFirst) = {.known = true, .first = true, .response = true, .has_aeth = true};
  at(Operation::kReadResponseMiddle) = {.known = true, .response = true};
  at(Operation::kReadResponseLast) = {.known = true, .last = true, .response = true, .has_aeth = true};
  at(Operation::kReadResponseOnly) = {.known = true, .first = true, .last = true, .response = true, .has_aeth = true};
  at(Operation::kAcknowledge) = {.known = true, .has_aeth = true};
  at(Operation::kAtomicAcknowledge) = {.known = true, .has_aeth = true, .has_atomic_ack = true};
  at(Operation::kCompareSwap) = {
      .known = true, .request = true, .first = true, .last = true, .atomic = true, .has_atomic_eth = true};
  at(Operation::kFetchAdd) = at(Operation::kCompareSwap);
  at(Operation::kSendLastInvalidate) = {
      .known = true, .request = true, .last = true, .send = true, .has_invalidate = true};
  at(Operation::kSendOnlyInvalidate) = {
      .known = true, .request = true, .first = true, .last = true, .send = true, .has_invalidate = true};
  return table;
}

constexpr std::array<OperationTraits, 32> kTraits = make_traits();

template <typename Number>
Number to_network(Number number) {
  if constexpr (std::endian::native == std::endian::big || sizeof(Number) == 1) return number;
  if constexpr (sizeof(Number) == 2) return static_cast<Number>(__builtin_bswap16(number));
  if constexpr (sizeof(Number) == 4) return static_cast<Number>(__builtin_bswap32(number));
  if constexpr (sizeof(Number) == 8) return static_cast<Number>(__builtin_bswap64(number));
}

template <typename Number>
void put(std::byte*& at, Number number) {
  const Number wire = to_network(number);
  std::memcpy(at, &wire, sizeof(wire));
  at += sizeof(wire);
}

template <typename Number>
Number get(const std::byte*& at) {
  Number wire;
  std::memcpy(&wire, at, sizeof(wire));
  at += sizeof(wire);
  return to_network(wire);
}

// Whether a transport supports an operation. Other packets are dropped.
bool carries(Transport transport, Operation operation) {
  const OperationTraits& traits = traits_of(operation);
  if (!traits.known) return false;
  switch (transport) {
    case Transport::kReliable:
    case Transport::kExtended:
      return true;
    case Transport::kUnreliable:
      return (traits.send || traits.write) && !traits.has_invalidate;
    case Transport::kDatagram:
      return operation == Operation::kSendOnly || operation == Operation::kSendOnlyImmediate;
    case Transport::kNotification:
      break;
  }
  return false;
}

// Decodes the BTH. False for a packet that is dropped regardless of its other headers.
bool take_bth(const std::byte*& at, Headers& headers) {
  const auto opcode = get<std::uint8_t>(at);
  headers.operation = static_cast<Operation>(opcode & kOperationMask);
  headers.transport = static_cast<Transport>(opcode & ~kOperationMask);
  if (opcode == kNotificationOpcode)
    headers.operation = Operation::kCongestionNotification;
  else if (!carries(headers.transport, headers.operation))
    return false;
  const auto flags = get<std::uint8_t>(at);
  const auto p_key = get<std::uint16_t>(at);
  headers.solicited = (flags & kSolicitedBit) != 0;
  headers.pad_bytes = (flags >> kPadShift) & 3;
  const bool version_is_zero = (flags & 0x0f) == 0;
  if (!version_is_zero || (p_key & kPKeyMembershipMask) != (kDefaultPKey & kPKeyMembershipMask)) return false;
  headers.destination = get<std::uint32_t>(at) & 0xffffffu;
  const auto sequence = get<std::uint32_t>(at);
  headers.ack_request = (sequence >> 31) != 0;
  headers.psn = Psn(sequence);
  return true;
}

}  // namespace

const OperationTraits& traits_of(Operation operation) {
  return kTraits[static_cast<std::size_t>(operation) & kOperationMask];
}

std::size_t header_bytes(Transport transport, Operation operation) {
  const OperationTraits& traits = traits_of(operation);
  std::size_t bytes = kBthBytes;
  if (transport == Transport::kDatagram) bytes += kDethBytes;
  if (transport == Transport::kNotification) bytes += kNotificationBytes;
  if (transport == Transport::kExtended && traits.request) bytes += kXrcEthBytes;
  if (traits.has_reth) bytes += kRethBytes;
  if (traits.has_atomic_eth) bytes += kAtomicEthBytes;
  if (traits.has_aeth) bytes += kAethBytes;
  if (traits.has_atomic_ack) bytes += kAtomicAckEthBytes;
  if (traits.has_immediate) bytes += kImmDtBytes;
  if (traits.has_invalidate) bytes += kIethBytes;
  return bytes;
}

std::size_t encode(const Headers& headers, std::byte* bytes) {
  const OperationTraits& traits = traits_of(headers.operation);
  std::byte* at = bytes;
  const bool notification = headers.transport == Transport::kNotification;
  put<std::uint8_t>(at, notification ? kNotificationOpcode
                                     : static_cast<std::uint8_t>(static_cast<unsigned>(headers.transport) |
                                                                 static_cast<unsigned>(headers.operation)));
  put<std::uint8_t>(at, static_cast<std::uint8_t>((headers.solicited ? kSolicitedBit : 0u) | kMigratedBit |
                                                  static_cast<unsigned>(headers.pad_bytes << kPadShift)));
  put<std::uint16_t>(at, kDefaultPKey);
  put<std::uint32_t>(at, (headers.destination & 0xffffffu) | (notification ? kBackwardBit : 0u));
  put<std::uint32_t>(
      at, (headers.ack_request ? static_cast<std::uint32_t>(kAckRequestBit) << 24 : 0u) | headers.psn.value());
  if (notification) {
    std::memset(at, 0, kNotificationBytes);
    at += kNotificationBytes;
  }
  if (headers.transport == Transport::kDatagram) {
    put<std::uint32_t>(at, headers.q_key);
    put<std::uint32_t>(at, headers.source & 0xffffffu);
  }
  if (headers.transport == Transport::kExtended && traits.request)
    put<std::uint32_t>(at, headers.shared_queue & 0xffffffu);
  if (traits.has_reth) {
    put<std::uint64_t>(at, headers.address);
    put<std::uint32_t>(at, headers.key);
    put<std::uint32_t>(at, headers.length);
  }
  if (traits.has_atomic_eth) {
    put<std::uint64_t>(at, headers.address);
    put<std::uint32_t>(at, headers.key);
    put<std::uint64_t>(at, headers.swap_or_add);
    put<std::uint64_t>(at, headers.compare);
  }
  if (traits.has_aeth)
    put<std::uint32_t>(at, static_cast<std::uint32_t>(headers.syndrome) << 24 | (headers.message_count & 0xffffffu));
  if (traits.has_atomic_ack) put<std::uint64_t>(at, headers.original);
  if (traits.has_immediate) {
    std::memcpy(at, &headers.immediate, sizeof(headers.immediate));
    at += sizeof(headers.immediate);
  }
  if (traits.has_invalidate) put<std::uint32_t>(at, headers.key);
  return static_cast<std::size_t>(at - bytes);
}

std::optional<Packet> decode(std::span<const std::byte> bytes) {
  if (bytes.size() < kBthBytes + kIcrcBytes || bytes.size() > kMaxPacketBytes) return std::nullopt;
  Packet packet;
  Headers& headers = packet.headers;
  const std::byte* at = bytes.data();
  if (!take_bth(at, headers)) return std::nullopt;
  const std::size_t length_of_headers = header_bytes(headers.transport, headers.operation);
  if (bytes.size() < length_of_headers + headers.pad_bytes + kIcrcBytes || bytes.size() % 4 != 0) return std::nullopt;

  const OperationTraits& traits = traits_of(headers.operation);
  if (headers.transport == Transport::kDatagram) {
    headers.q_key = get<std::uint32_t>(at);
    headers.source = get<std::uint32_t>(at) & 0xffffffu;
  }
  if (headers.transport == Transport::kExtended && traits.request)
    headers.shared_queue = get<std::uint32_t>(at) & 0xffffffu;
  if (traits.has_reth) {
    headers.address = get<std::uint64_t>(at);
    headers.key = get<std::uint32_t>(at);
    headers.length = get<std::uint32_t>(at);
  }
  if (traits.has_atomic_eth) {
    headers.address = get<std::uint64_t>(at);
    headers.key = get<std::uint32_t>(at);
    headers.swap_or_add = get<std::uint64_t>(at);
    headers.compare = get<std::uint64_t>(at);
  }
  if (traits.has_aeth) {
    const auto aeth = get<std::uint32_t>(at);
    headers.syndrome = static_cast<std::uint8_t>(aeth >> 24);
    headers.message_count = aeth & 0xffffffu;
  }
  if (traits.has_atomic_ack) headers.original = get<std::uint64_t>(at);
  if (traits.has_immediate) {
    std::memcpy(&headers.immediate, at, sizeof(headers.immediate));
    at += sizeof(headers.immediate);
  }
  if (traits.has_invalidate) headers.key = get<std::uint32_t>(at);
  packet.payload = bytes.subspan(length_of_headers, bytes.size() - length_of_headers - headers.pad_bytes - kIcrcBytes);
  return packet;
}

bool decode_bare(std::span<const std::byte, kBthBytes> bytes, Headers& headers) {
  const std::byte* at = bytes.data();
  return take_bth(at, headers) && headers.pad_bytes == 0 &&
         header_bytes(headers.transport, headers.operation) == kBthBytes;
}

std::uint32_t destination_of(const std::byte* bytes) {
  const std::byte* at = bytes + 4;
  return get<std::uint32_t>(at) & 0xffffffu;
}

std::int64_t rnr_delay_ns(std::uint8_t code) {
  // In units of 10 µs. Source: InfiniBand Architecture Specification vol. 1, table 45.
  static constexpr std::array<std::int64_t, 32> kTensOfMicroseconds = {
      65536, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return kTensOfMicroseconds[code & kSyndromeValueMask] * 10000;
}

}  // namespace plugfest::roce
