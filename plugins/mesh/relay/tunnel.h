// A byte stream to a peer through the processes of other hosts.
//
//   asker                                   relay
//     UDP multicast: Query {nonce, proof}  →                 to all processes on the links of the asker
//                               ←          Answer {nonce, host, port, proof}
//     TCP to that port          →
//                               ←          Greeting {nonce}
//     Request {hops, target, proof}  →                       the relay connects to the target, or to a further relay
//                               ←          Reply {status, proof}
//     from here on the relay copies bytes in both directions
//
// Proofs are MACs with the key of NCCL_MESH_RELAY_SECRET, over the nonce and the whole message.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plugins/mesh/device/path.h"
#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/handshake/socket.h"

namespace mesh {

/// Maximum number of relays between two hosts.
inline constexpr std::uint8_t kMaxHops = 8;

/// The key derived from a secret text.
Secret relay_key(const std::string& text);

struct Query {
  Nonce nonce = {};
};
struct Answer {
  Nonce nonce = {};
  std::uint64_t host = 0;  ///< differs between hosts
  std::uint16_t port = 0;
};
struct Greeting {
  Nonce nonce = {};
};
struct Request {
  std::uint8_t hops = 0;  ///< number of relays that the tunnel may pass, from this one on; 1 to kMaxHops
  std::uint16_t port = 0;
  std::vector<Address> addresses;  ///< addresses of the target; 1 to 255
};
enum class TunnelStatus : std::uint8_t { kOpen = 1, kNoPath, kBusy };

/// Encode a message. Layout, little-endian, sizes in bytes: magic (4), version (1), type (1), length of the body (2),
/// body, proof (16); a Greeting has no proof. `nonce`: the nonce of the exchange.
std::vector<std::uint8_t> encode(const Query& query, const Secret& key);
std::vector<std::uint8_t> encode(const Answer& answer, const Secret& key);
std::vector<std::uint8_t> encode(const Greeting& greeting);
std::vector<std::uint8_t> encode(const Request& request, const Secret& key, const Nonce& nonce);
std::vector<std::uint8_t> encode(TunnelStatus status, const Secret& key, const Nonce& nonce);

/// Decode exactly one message. Return nullopt if it is invalid or its proof is wrong.
std::optional<Query> decode_query(std::span<const std::uint8_t> bytes, const Secret& key);
std::optional<Answer> decode_answer(std::span<const std::uint8_t> bytes, const Secret& key, const Nonce& nonce);
std::optional<Greeting> decode_greeting(std::span<const std::uint8_t> bytes);
std::optional<Request> decode_request(std::span<const std::uint8_t> bytes, const Secret& key, const Nonce& nonce);
std::optional<TunnelStatus> decode_status(std::span<const std::uint8_t> bytes, const Secret& key, const Nonce& nonce);

/// Reads one message from a socket, and no byte after it.
class MessageReader {
 public:
  enum class Result : std::uint8_t { kIncomplete, kComplete, kFailed };
  Result read(const Socket& socket);
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<std::uint8_t> bytes_;
};

/// Sends a short message. Returns false if the socket does not take all of it at once.
bool send_all(const Socket& socket, const std::vector<std::uint8_t>& bytes);

struct Neighbor {
  Address local;    ///< address of this host's NIC on the link to the process
  Address address;  ///< address of the process
  std::uint16_t port = 0;
  std::uint64_t host = 0;
};

/// Opens a tunnel through the first of some neighbors that reaches the target. Not thread-safe.
class TunnelOpener {
 public:
  TunnelOpener(const Secret& key, Request request, std::vector<Neighbor> neighbors);

  /// Makes the progress that is possible without waiting. Returns false when it is finished.
  bool step();
  /// The tunnel; closed if no neighbor reaches the target. Precondition: `step` returned false.
  Socket take() { return std::move(socket_); }
  /// The socket to wait for; -1: none.
  int fd() const { return socket_.fd(); }
  bool wants_to_write() const { return stage_ == Stage::kConnecting; }

 private:
  enum class Stage : std::uint8_t { kNext, kConnecting, kGreeting, kReply, kDone };
  void next(bool skip_host);

  Secret key_;
  Request request_;
  std::vector<Neighbor> neighbors_;
  std::size_t index_ = 0;
  Stage stage_ = Stage::kNext;
  Socket socket_;
  MessageReader reader_;
  Nonce nonce_ = {};
  std::int64_t since_ms_ = 0;
};

}  // namespace mesh
