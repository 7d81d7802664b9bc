// What two hosts say to each other over TCP while a connection is made, and when it ends.
//
//   connector                                   listener
//     Hello {nonce, its end of the queue pair}  →
//                                               ←  Welcome {the other end}       or Refused {why}
//     Ready                                     →                                both may transfer now
//     …                                              the TCP connection stays open: its end is the peer's end
//     Goodbye {messages received}               ↔  Goodbye
//
// Ask {nonce} is a Hello of a connector that found none of the addresses in the handle on a subnet of its own, where
// the handle had no room for all: it gets Addresses and connects anew.
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

/// One end of a queue pair, as the other end needs to know it.
struct Endpoint {
  Address gid;
  std::uint32_t queue_pair = 0;         ///< 24 bits
  std::uint32_t packet_sequence = 0;    ///< first PSN that it sends, 24 bits
  std::uint32_t max_message_bytes = 0;  ///< of its port
  std::uint8_t mtu = 0;                 ///< an `ibv_mtu`

  bool operator==(const Endpoint&) const = default;
};

/// Why a listener refuses.
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

/// Wire form, little-endian: magic (4), version (1), type (1), length of the rest (2), the rest.
std::vector<std::uint8_t> encode(const Message& message);

/// Cuts a stream of bytes into messages.
class MessageParser {
 public:
  /// Takes the next bytes of the stream.
  void feed(std::span<const std::uint8_t> bytes) { pending_.insert(pending_.end(), bytes.begin(), bytes.end()); }

  /// The next whole message, or nothing yet. Errors: Failure (kRemoteError) if the bytes are no message; the stream is
  /// of no use then.
  std::optional<Message> next();

 private:
  std::vector<std::uint8_t> pending_;
};

}  // namespace mesh
