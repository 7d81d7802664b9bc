// The messages of two connection managers, which they exchange over TCP.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace plugfest::rdma_cm {

/// The TCP port on which connection managers accept connections, on each RoCE address of a host.
inline constexpr std::uint16_t kManagerPort = 4792;

/// The messages of a connection, in this order. The InfiniBand Architecture Specification vol. 1, chapter 12, calls
/// them REQ, REP, RTU and REJ; of an unreliable datagram service, SIDR_REQ and SIDR_REP. To disconnect, a side closes
/// its half of the TCP connection.
enum class MessageType : std::uint8_t { kRequest = 1, kReply, kReady, kReject };

/// Whether identifiers of a port space (rdma_port_space) ask for a datagram service: the peer's queue pair number
/// instead of a connection.
constexpr bool is_datagram(std::uint16_t port_space) { return port_space == 0x0111 || port_space == 0x0002; }

/// The maximum size of private data, in bytes, as in the kernel: the size in the packet, less 36 for the addresses
/// in a request.
constexpr std::size_t max_private_bytes(MessageType type, bool datagram) {
  switch (type) {
    case MessageType::kRequest:
      return datagram ? 180 : 56;
    case MessageType::kReply:
      return datagram ? 136 : 196;
    case MessageType::kReady:
      return 0;
    case MessageType::kReject:
      return datagram ? 136 : 148;
  }
  return 0;
}

/// Why a request is rejected: some values of the kernel's ib_cm_rej_reason.
enum class RejectReason : std::uint8_t { kNoResources = 3, kInvalidServiceId = 8, kConsumerDefined = 28 };

/// One message. Numbers are in host order. Fields that the message type does not need are 0.
struct Message {
  MessageType type = MessageType::kRequest;
  std::uint8_t qp_type = 0;            ///< ibv_qp_type
  std::uint16_t port_space = 0;        ///< rdma_port_space; in all messages
  std::uint16_t destination_port = 0;  ///< in a request: the port of the listener
  std::uint16_t source_port = 0;
  std::uint32_t qp_number = 0;  ///< 24 bits
  std::uint32_t qkey = 0;
  std::uint32_t psn = 0;  ///< the first PSN that the sender will send; 24 bits
  std::uint8_t mtu = 0;   ///< ibv_mtu
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t flow_control = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t srq = 0;
  RejectReason reason = {};  ///< in a rejection
  std::uint8_t private_size = 0;
  std::array<std::uint8_t, 196> private_data = {};
};

/// All messages have this size.
inline constexpr std::size_t kMessageBytes = 240;
using MessageBytes = std::array<std::byte, kMessageBytes>;

/// Bytes 0 to 3: "PFCM"; 4: the version, 1; then the fields in their order, in network order, each aligned to its size;
/// the rest is 0.
MessageBytes encode(const Message& message);

/// nullopt if the bytes, which are untrusted, are not a valid message.
std::optional<Message> decode(std::span<const std::byte, kMessageBytes> bytes);

}  // namespace plugfest::rdma_cm
