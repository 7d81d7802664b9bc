// The connection between the controller and an agent: messages over TCP, each with a MAC.
//
// The connection opens with a handshake in which each side proves that it knows the token:
//
//   controller → agent   "pfcert02", nonce C (32 bytes)
//   agent → controller   "pfcert02", nonce A (32 bytes), HMAC(token, "agent", C, A)
//   controller → agent   HMAC(token, "controller", C, A)
//
// Each direction then has a key of its own, HMAC(token, "to agent" or "to controller", C, A). A message is a header of
// 20 bytes, five numbers of 32 bits in little endian: size of the body, kind, rank, channel, opened channel; the body;
// and the first 16 bytes of HMAC(key, number of the message, header, body). So a message can neither be changed, nor
// repeated, nor left out. Nothing is encrypted.
//
// Before the handshake is complete, a side reads a fixed number of bytes and allocates nothing more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric/system/descriptor.h"
#include "harness/certify/wire/token.h"

namespace plugfest::certify {

/// The agents' ranks have channels: these, and from kFirstOpened on those of the threads that were started later.
inline constexpr std::uint32_t kControlChannel = 0, kMainChannel = 1, kLogChannel = 2, kOutputChannel = 3;
inline constexpr std::uint32_t kFirstOpened = 4;

enum class Kind : std::uint32_t {
  // To an agent.
  kExamine = 1,  ///< JSON {plugin} → kFacts
  kStart,        ///< JSON {environment}: start rank `rank` → kStarted or kFailed
  kFreeze,       ///< → kFrozen
  kThaw,
  kEnd,      ///< kill the rank → kExited
  kPing,     ///< → kPong
  kMeasure,  ///< JSON of a PairOrder: measure a pair → kListening, later kMeasured. `rank`: number of the order
  kAssist,   ///< body of kListening: join that agent for the order with the number `rank`; → kFailed if that is
             ///< impossible
  kFinish,   ///< end the agent
  // From an agent.
  kHello = 32,  ///< JSON {name, version}: the first message
  kFacts,       ///< JSON
  kStarted,
  kFailed,  ///< text
  kFrozen,  ///< one byte: whether the rank is stopped; else it has ended
  kEnded,   ///< the rank has ended on its own
  kExited,  ///< wait status in decimal digits
  kPong,
  kListening,  ///< "10.0.0.1 41234": where the other agent of the order is to join
  kMeasured,   ///< JSON of a PairReport
  kWaited,     ///< nanoseconds in decimal digits: for so long the rank or the agent has waited for a processor, again
  // In both directions.
  kData =
      64,   ///< bytes of a channel. `opened`: number of the channel whose descriptor goes with the first byte; 0: none
  kClosed,  ///< the end of a channel
};

struct Message {
  Kind kind = Kind::kPing;
  std::uint32_t rank = 0;
  std::uint32_t channel = 0;
  std::uint32_t opened = 0;
  std::string body = {};
};

/// When the peer has closed the connection, does not know the token or has sent something invalid, failure() says so,
/// and nothing more is sent or received. Thread safety: none.
class Link {
 public:
  enum class Side : std::uint8_t { kController, kAgent };
  static constexpr std::size_t kLargestBody = 1u << 20;

  /// Takes a connected TCP socket and makes it non-blocking. Errors: std::runtime_error.
  Link(Descriptor socket, Side side, const Token& token);

  int fd() const { return socket_.get(); }
  /// Whether the peer has proved that it knows the token.
  bool established() const { return established_; }
  /// Queues a message and sends as much as fits. `body` has at most kLargestBody bytes. Call it once established.
  void send(const Message& message);
  /// Sends what is queued, as much as fits.
  void flush();
  bool has_unsent() const { return sent_ < outbox_.size(); }
  std::size_t unsent_bytes() const { return outbox_.size() - sent_; }
  /// Reads what has arrived and returns what is complete. Never waits.
  std::vector<Message> receive();
  /// One line; empty while the connection works.
  const std::string& failure() const { return failure_; }

  struct Counters {
    std::uint64_t messages_sent = 0, messages_received = 0, bytes_sent = 0, bytes_received = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  void queue(Bytes bytes);
  void fail(const std::string& why) {
    if (failure_.empty()) failure_ = why;
  }
  /// Reads once; false if nothing more has arrived.
  bool fill();
  /// Takes one part of the handshake from the inbox; false if it is not complete.
  bool take_handshake();
  bool take_message(Message& message);
  void make_keys();
  Digest prove(std::string_view who) const;

  Descriptor socket_;
  const Side side_;
  const Token token_;
  Digest own_nonce_, peer_nonce_{};
  bool established_ = false;
  bool answered_ = false;
  Token send_key_{}, receive_key_{};
  std::uint64_t next_sent_ = 0, next_received_ = 0;
  std::string inbox_;
  std::size_t taken_ = 0;
  std::string outbox_;
  std::size_t sent_ = 0;
  std::string failure_;
  Counters counters_;
};

}  // namespace plugfest::certify
