// Messages of the handshake, over TCP.
//
//   connector                            listener
//     Hello {nonce, endpoint}   →
//                               ←          Welcome {endpoint}, or Refused {reason}
//     Ready                     →                       from here on both sides may transfer
//     …                                  the TCP connection stays open, so that each side detects the end of the other
//     Goodbye {messages received}  ↔     Goodbye {messages received}
//
// A connector sends Ask {nonce} instead of Hello if the handle is truncated and none of its addresses is on a subnet of
// the connector. The listener answers with Addresses, and the connector connects again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "plugins/mesh/handshake/handle.h"

namespace mesh {

/// The properties of a queue pair that its peer needs.
struct Endpoint {
  Address gid;
  std::uint32_t queue_pair = 0;         ///< 24 bits
  std::uint32_t packet_sequence = 0;    ///< first PSN that it sends; 24 bits
  std::uint32_t max_message_bytes = 0;  ///< of its port
  std::uint8_t mtu = 0;                 ///< an `ibv_mtu`

  bool operator==(const Endpoint&) const = default;
};

/// Why a listener refuses a connection.
enum class Refusal : std::uint8_t { kUnknownListener = 1, kNoResources = 2 };

struct Hello {
  Nonce nonce = {};
  Endpoint endpoint;
};
struct Welcome {
  Endpoint endpoint;
};
struct Ready {};
struct Refused {
  Refusal reason = Refusal::kUnknownListener;
};
struct Ask {
  Nonce nonce = {};
};
struct Addresses {
  std::vector<PeerAddress> addresses;
};
struct Goodbye {
  std::uint64_t messages_received = 0;
};
using Message = std::variant<Hello, Welcome, Ready, Refused, Ask, Addresses, Goodbye>;

/// Encodes a message. Layout, little-endian, sizes in bytes: magic (4), version (1), type (1), length of the body (2),
/// body.
std::vector<std::uint8_t> encode(const Message& message);

/// Parses a stream of bytes into messages.
class MessageParser {
 public:
  /// Takes the next bytes of the stream.
  void feed(std::span<const std::uint8_t> bytes) { pending_.insert(pending_.end(), bytes.begin(), bytes.end()); }

  /// The next complete message, or nullopt. Errors: Failure (kRemoteError) if the bytes are not a valid message; the
  /// stream cannot be continued then.
  std::optional<Message> next();

 private:
  std::vector<std::uint8_t> pending_;
};

}  // namespace mesh
