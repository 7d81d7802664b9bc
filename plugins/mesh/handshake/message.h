// Messages of the handshake over TCP, and their encoding.
//
//   connector                            listener
//     Hello {listener, nonce, lanes, eager, proof}  →
//                               ←          Welcome {endpoints, bounce, proof}, or Refused {reason}
//     Ready                     →                       from here on both sides may transfer
//     …                                  the TCP connection stays open, so that each side detects the end of the other
//     Close {messages received, proof}  ↔  Close {messages received, proof}
//
// A connector sends Ask {listener, nonce, proof} instead of Hello if the handle is truncated and none of its addresses
// is on a subnet of the connector. The listener answers with Addresses, and the connector connects again.
//
// A proof shows that its sender knows the listener's secret (handle.h). It covers the whole message and the connector's
// nonce. A listener takes each nonce once, so a third party cannot use a recorded Hello.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "plugins/mesh/handshake/handle.h"

namespace mesh {

/// Appends numbers and bytes to a buffer.
class ByteWriter {
 public:
  template <std::unsigned_integral T>
  void number(T value) {
    for (std::size_t i = 0; i < sizeof value; ++i) bytes_.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  void bytes(std::span<const std::uint8_t> source) { bytes_.insert(bytes_.end(), source.begin(), source.end()); }
  std::size_t size() const { return bytes_.size(); }
  std::vector<std::uint8_t> take() { return std::move(bytes_); }

 private:
  std::vector<std::uint8_t> bytes_;
};

/// A message: magic, version, type, length of the body (16 bits), body.
inline std::vector<std::uint8_t> framed(std::uint32_t magic, std::uint8_t version, std::uint8_t type, ByteWriter body) {
  ByteWriter whole;
  whole.number(magic);
  whole.number(version);
  whole.number(type);
  whole.number(static_cast<std::uint16_t>(body.size()));
  whole.bytes(body.take());
  return whole.take();
}

/// Reads numbers and bytes from a range. Reads beyond its end return zeroes and make `ok` false permanently, so one
/// check after the last read is enough.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::uint8_t> source) : rest_(source) {}

  template <std::unsigned_integral T>
  T number() {
    std::uint8_t raw[sizeof(T)] = {};
    bytes(raw);
    T value = 0;
    for (std::size_t i = 0; i < sizeof value; ++i) value = static_cast<T>(value | static_cast<T>(T{raw[i]} << (8 * i)));
    return value;
  }
  void bytes(std::span<std::uint8_t> target) {
    if (target.size() > rest_.size()) {
      ok_ = false;
      rest_ = {};
      std::memset(target.data(), 0, target.size());
      return;
    }
    std::memcpy(target.data(), rest_.data(), target.size());
    rest_ = rest_.subspan(target.size());
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  std::span<const std::uint8_t> rest_;
  bool ok_ = true;
};

/// The properties of a queue pair that its peer needs.
struct Endpoint {
  Address gid;
  std::uint32_t queue_pair = 0;         ///< 24 bits
  std::uint32_t packet_sequence = 0;    ///< first PSN that it sends; 24 bits
  std::uint32_t max_message_bytes = 0;  ///< maximum of its port
  std::uint8_t mtu = 0;                 ///< an `ibv_mtu`

  bool operator==(const Endpoint&) const = default;
};

/// Its encoding in messages.
inline constexpr std::size_t kEndpointBytes = 29;
void put(ByteWriter& writer, const Endpoint& endpoint);
/// Errors: Failure (kRemoteError) for invalid bytes.
Endpoint get_endpoint(ByteReader& reader);

inline constexpr std::size_t kMaxLanes = 4;

/// A lane of a connection, as the connector proposes it.
struct LaneOffer {
  Endpoint endpoint;  ///< endpoint of the connector
  Address peer;       ///< address of the listener's NIC that this lane uses

  bool operator==(const LaneOffer&) const = default;
};

/// A listener's memory for small messages whose receive was not announced.
struct Bounce {
  std::uint32_t bytes = 0;  ///< bytes of each slot; 0: such messages are not sent
  std::uint32_t remote_key = 0;
  std::uint64_t address = 0;  ///< address of the first slot

  bool operator==(const Bounce&) const = default;
};

/// Maximum size of a slot.
inline constexpr std::uint32_t kMaxEagerBytes = 4096;

/// Why a listener refuses a connection.
enum class Refusal : std::uint8_t { kUnknownListener = 1, kNoResources = 2 };

struct Hello {
  ListenerId listener = {};
  Nonce nonce = {};
  std::vector<LaneOffer> lanes;   ///< 1 to kMaxLanes
  std::uint32_t eager_bytes = 0;  ///< maximum size of a message that is sent before its receive is announced
  Proof proof = {};
};
struct Welcome {
  std::vector<Endpoint> endpoints;  ///< one for each lane of the Hello, in the same order
  Bounce bounce;
  Proof proof = {};
};
struct Ready {};
struct Refused {
  Refusal reason = Refusal::kUnknownListener;
};
struct Ask {
  ListenerId listener = {};
  Nonce nonce = {};
  Proof proof = {};
};
struct Addresses {
  std::vector<PeerAddress> addresses;
  Proof proof = {};
};
struct Close {
  std::uint64_t messages_received = 0;
  bool of_listener = false;  ///< the sending side, so that nobody can send the message back
  Proof proof = {};
};
using Message = std::variant<Hello, Welcome, Ready, Refused, Ask, Addresses, Close>;

/// Encodes a message. Layout, little-endian, sizes in bytes: magic (4), version (1), type (1), length of the body (2),
/// body.
std::vector<std::uint8_t> encode(const Message& message);

/// The key of proofs in messages after the handshake.
struct ConnectionKey {
  Secret secret;
  Nonce nonce = {};  ///< nonce of the Hello
  bool is_listener = false;
};

/// Returns `message`, a Hello, Welcome, Ask, Addresses or Close, with its proof. `nonce`: the connector's.
template <typename Proven>
Proven with_proof(Proven message, const Secret& secret, const Nonce& nonce) {
  message.proof = {};
  message.proof = secret.prove(nonce, encode(message));
  return message;
}
/// Whether the sender of `message` knew `secret` and meant the exchange with this nonce.
template <typename Proven>
bool is_proven(const Proven& message, const Secret& secret, const Nonce& nonce) {
  return equal(with_proof(message, secret, nonce).proof, message.proof);
}

/// Parses a stream of bytes into messages.
class MessageParser {
 public:
  /// Takes the next bytes of the stream.
  void feed(std::span<const std::uint8_t> bytes) { pending_.insert(pending_.end(), bytes.begin(), bytes.end()); }

  /// The next complete message, or nullopt. Errors: Failure (kRemoteError) if the bytes are not a valid message; the
  /// stream cannot be continued then.
  std::optional<Message> next();

  /// The bytes after the last message.
  std::vector<std::uint8_t> take_rest() { return std::exchange(pending_, {}); }

 private:
  std::vector<std::uint8_t> pending_;
};

}  // namespace mesh
