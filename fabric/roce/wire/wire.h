// RoCEv2 packets: congestion marks (RFC 3168), sequence numbers, opcodes and headers.
// Source: InfiniBand Architecture Specification vol. 1, chapter 9 and Annex A17.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace plugfest::roce {

inline constexpr std::uint8_t kEcnMask = 3;     ///< the two low bits of an IP packet's traffic class
inline constexpr std::uint8_t kEcnCapable = 2;  ///< ECT(0): switches may mark the packet instead of dropping it
inline constexpr std::uint8_t kCongestionExperienced = 3;  ///< a switch has marked the packet

inline std::uint8_t ecn_capable(std::uint8_t traffic_class) {
  return static_cast<std::uint8_t>((traffic_class & ~kEcnMask) | kEcnCapable);
}

inline bool is_marked(std::uint8_t traffic_class) { return (traffic_class & kEcnMask) == kCongestionExperienced; }

/// A packet sequence number of 24 bits, compared modulo 2^24.
class Psn {
 public:
  constexpr Psn() = default;
  constexpr explicit Psn(std::uint32_t value) : value_(value & kMask) {}

  constexpr std::uint32_t value() const { return value_; }
  constexpr Psn operator+(std::uint32_t packets) const { return Psn(value_ + packets); }
  constexpr Psn previous() const { return Psn(value_ - 1); }
  constexpr bool operator==(const Psn&) const = default;

  /// How far this is after `other`: negative if it is before. Between -2^23 and 2^23 - 1.
  constexpr std::int32_t after(Psn other) const {
    const std::uint32_t difference = (value_ - other.value_) & kMask;
    return static_cast<std::int32_t>(difference << 8) >> 8;
  }

 private:
  static constexpr std::uint32_t kMask = 0xffffff;
  std::uint32_t value_ = 0;
};

inline constexpr std::uint16_t kRoceUdpPort = 4791;
/// The destination of datagrams for multicast groups, instead of a queue pair number.
inline constexpr std::uint32_t kMulticastNumber = 0xffffff;
inline constexpr std::size_t kBthBytes = 12;
inline constexpr std::size_t kIcrcBytes = 4;

/// Sizes of extended transport headers. Source: InfiniBand Architecture Specification vol. 1, section 9.3; for XRCETH
/// Annex A14.
inline constexpr std::size_t kDethBytes = 8;
inline constexpr std::size_t kRethBytes = 16;
inline constexpr std::size_t kAtomicEthBytes = 28;
inline constexpr std::size_t kAethBytes = 4;
inline constexpr std::size_t kAtomicAckEthBytes = 8;
inline constexpr std::size_t kImmDtBytes = 4;
inline constexpr std::size_t kIethBytes = 4;
inline constexpr std::size_t kXrcEthBytes = 4;

inline constexpr std::size_t kMaxHeaderBytes = kBthBytes + kXrcEthBytes + kAtomicEthBytes;
inline constexpr std::size_t kMaxPathMtuBytes = 4096;
inline constexpr std::size_t kMaxPacketBytes = kMaxPathMtuBytes + kMaxHeaderBytes + kIcrcBytes;  ///< UDP payload

/// Low five bits of an opcode, the same in every transport.
enum class Operation : std::uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImmediate = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImmediate = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImmediate = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImmediate = 0x0b,
  kReadRequest = 0x0c,
  kReadResponseFirst = 0x0d,
  kReadResponseMiddle = 0x0e,
  kReadResponseLast = 0x0f,
  kReadResponseOnly = 0x10,
  kAcknowledge = 0x11,
  kAtomicAcknowledge = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kSendLastInvalidate = 0x16,
  kSendOnlyInvalidate = 0x17,
  kCongestionNotification = 0x1f,  ///< internal; the opcode on the wire is kNotificationOpcode
};

/// High three bits of an opcode.
enum class Transport : std::uint8_t {
  kReliable = 0x00,
  kUnreliable = 0x20,
  kDatagram = 0x60,
  kNotification = 0x80,
  kExtended = 0xa0,  ///< XRC: reliable, and each request names a shared receive queue
};
/// Whether lost packets are repeated: RC and XRC.
constexpr bool is_reliable(Transport transport) {
  return transport == Transport::kReliable || transport == Transport::kExtended;
}

/// A congestion notification packet (CNP): BTH with the BECN bit, and 16 bytes of zeros.
inline constexpr std::uint8_t kNotificationOpcode = 0x81;
inline constexpr std::size_t kNotificationBytes = 16;

/// Properties of an operation.
struct OperationTraits {
  bool known = false;
  bool request = false;   ///< goes to the responder; otherwise an answer to the requester
  bool first = false;     ///< begins a message (or a read's response)
  bool last = false;      ///< ends a message
  bool send = false;      ///< part of a SEND
  bool write = false;     ///< part of an RDMA WRITE
  bool atomic = false;    ///< CMP_SWAP or FETCH_ADD
  bool response = false;  ///< READ response
  bool has_reth = false;
  bool has_atomic_eth = false;
  bool has_aeth = false;
  bool has_atomic_ack = false;
  bool has_immediate = false;
  bool has_invalidate = false;
};
const OperationTraits& traits_of(Operation operation);

/// All header fields of a packet. The opcode determines which of them are on the wire.
struct Headers {
  Transport transport = Transport::kReliable;
  Operation operation = Operation::kAcknowledge;
  bool solicited = false;
  bool ack_request = false;
  std::uint8_t pad_bytes = 0;
  std::uint32_t destination = 0;  ///< queue pair number
  Psn psn;

  std::uint64_t address = 0;  ///< RETH, AtomicETH
  std::uint32_t key = 0;      ///< RETH, AtomicETH; IETH: the key to invalidate
  std::uint32_t length = 0;   ///< RETH
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
  std::uint8_t syndrome = 0;        ///< AETH
  std::uint32_t message_count = 0;  ///< AETH: MSN, 24 bits
  std::uint64_t original = 0;       ///< AtomicAckETH: the value before the atomic
  std::uint32_t immediate = 0;      ///< ImmDt, in network order as in verbs
  std::uint32_t q_key = 0;          ///< DETH
  std::uint32_t source = 0;         ///< DETH: queue pair number
  std::uint32_t shared_queue = 0;   ///< XRCETH: number of a shared receive queue
};

/// Number of header bytes that encode() writes for this operation.
std::size_t header_bytes(Transport transport, Operation operation);

/// Writes the headers. `bytes` has room for kMaxHeaderBytes. Returns the number of bytes written.
std::size_t encode(const Headers& headers, std::byte* bytes);

/// Sets the pad count in headers that were encoded with pad count 0.
inline void write_pad(std::byte* bytes, std::size_t pad_bytes) { bytes[1] |= static_cast<std::byte>(pad_bytes << 4); }

/// A decoded packet. `payload` excludes pad and ICRC, and refers to the bytes that were decoded.
struct Packet {
  Headers headers;
  std::span<const std::byte> payload;
  bool in_place = false;  ///< the payload is already at its Placement (port/udp_port.h)
};

/// Decodes a UDP payload, which includes the ICRC; the ICRC is not checked. Returns nullopt for a packet that this NIC
/// does not support: it is too short or too long, its opcode is unknown, its transport version is not 0, its P_Key is
/// not the default one, or it has more padding than payload.
std::optional<Packet> decode(std::span<const std::byte> bytes);

/// Decodes the BTH of a packet without further headers and padding, as in the middle of a long message. `headers` must
/// be default-initialized. False for other packets, and for packets that decode() rejects.
bool decode_bare(std::span<const std::byte, kBthBytes> bytes, Headers& headers);

/// The destination queue pair number of a UDP payload of at least kBthBytes.
std::uint32_t destination_of(const std::byte* bytes);

// Syndromes of the AETH.

inline constexpr std::uint8_t kSyndromeAck = 0x1f;  ///< acknowledged; credits are not limited
inline constexpr std::uint8_t kSyndromeRnr = 0x20;  ///< plus five bits of timer
inline constexpr std::uint8_t kSyndromeNak = 0x60;  ///< plus NakCode
inline constexpr std::uint8_t kSyndromeKindMask = 0x60;
inline constexpr std::uint8_t kSyndromeValueMask = 0x1f;

enum class NakCode : std::uint8_t {
  kSequence = 0,
  kInvalidRequest = 1,
  kRemoteAccess = 2,
  kRemoteOperation = 3,
};

/// How long an RNR NAK's timer code asks to wait, in nanoseconds.
std::int64_t rnr_delay_ns(std::uint8_t code);

}  // namespace plugfest::roce
