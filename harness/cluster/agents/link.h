// A connection between the controller and an agent, or between two agents that measure a pair: messages over TLS 1.2.
//
// The token is the pre-shared key of TLS and the host's name its identity; the ALPN protocol is the version of the
// messages. Both sides therefore know the token before the first message, and messages are encrypted and protected
// against changes, repetition and omission. A message is its size (u32) and its fields as in harness/wire.
//
// For a peer that does not know the token, this side keeps only the buffers of TLS (about 40 kB).
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "harness/cluster/agents/token.h"
#include "harness/wire/fields.h"

namespace plugfest::cluster {

/// The channels of an agent's rank; from kFirstOpened on the channels of threads that were started later.
inline constexpr std::uint32_t kControlChannel = 0, kMainChannel = 1, kLogChannel = 2, kOutputChannel = 3;
inline constexpr std::uint32_t kFirstOpened = 4;

enum class Kind : std::uint32_t {
  // Messages to an agent.
  kExamine = 1,  ///< the plugin's path → kFacts
  kStart,   ///< an Environment: start rank `rank` → kStarted or kFailed; kFailed also later, if the agent ends it
  kFreeze,  ///< → kFrozen
  kThaw,
  kEnd,      ///< kill the rank → kExited
  kPing,     ///< → kPong
  kMeasure,  ///< a PairOrder: measure a pair → kListening, later kMeasured. `rank`: number of the order
  kAssist,   ///< body of kListening: join that agent for the order with the number `rank`; → kFailed if that is
             ///< impossible
  kFinish,   ///< end the agent
  // Messages from an agent.
  kHello = 32,  ///< the version of plugfest: the first message
  kFacts,       ///< JSON
  kStarted,
  kFailed,  ///< text
  kFrozen,  ///< bool: whether the rank is stopped; else it has ended
  kEnded,   ///< the rank has ended on its own
  kExited,  ///< std::int32_t: wait status
  kPong,
  kListening,  ///< "10.0.0.1 41234": where the other agent of the order is to join
  kMeasured,   ///< a PairReport
  kWaited,     ///< std::int64_t: nanoseconds for which the rank or the agent has waited for a processor again
  // Messages in both directions.
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
  PLUGFEST_FIELDS(kind, rank, channel, opened, body)
};

/// The body of a message that is a struct or a number.
template <typename T>
std::string body_of(const T& value) {
  const std::vector<std::byte> bytes = wire::encode(value);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
/// Errors: wire::WireError.
template <typename T>
T decode_body(const std::string& body) {
  return wire::decode<T>(std::as_bytes(std::span(body)));
}

/// After the peer has closed the connection, failed to prove the token or sent an invalid message, failure() says so,
/// and no more data is sent or received. Thread safety: none.
class Link {
 public:
  enum class Side : std::uint8_t { kController, kAgent };
  static constexpr std::size_t kMaxBody = 1u << 20;

  /// Takes a connected TCP socket and makes it non-blocking. `host`: the agent's name; the controller receives it from
  /// the agent. Errors: std::runtime_error.
  Link(Descriptor socket, Side side, const Token& token, const std::string& host = "");
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int fd() const { return socket_.get(); }
  /// The descriptor and events to poll before `receive`.
  pollfd polled() const { return {fd(), static_cast<short>(POLLIN | (unsent_bytes() != 0 ? POLLOUT : 0)), 0}; }
  /// Whether the peer has proved that it knows the token.
  bool established() const { return established_; }
  /// The agent's own name. Any text; valid once established.
  const std::string& host() const { return host_; }
  /// Sends a message, as far as it fits. `body` has at most kMaxBody bytes. Call it once established.
  void send(const Message& message);
  std::size_t unsent_bytes() const { return outbox_.size() - sent_; }
  /// Sends all unsent data, waiting until `deadline_ns` (now_ns()) at most.
  void flush_until(Nanoseconds deadline_ns);
  /// Sends unsent data as far as it fits, reads available data and returns complete messages. Never waits.
  std::vector<Message> receive();
  /// The failure, one line; empty while the connection works.
  const std::string& failure() const { return failure_; }

  struct Counters {
    /// Counts of both directions. Bytes include the overhead of TLS.
    std::uint64_t messages = 0, bytes = 0;
  };
  const Counters& counters() const { return counters_; }

 private:
  struct Tls;

  void flush();
  void fail(int error);
  void fail(const std::string& why);
  bool take(std::vector<Message>& messages);

  Descriptor socket_;
  const Token token_;
  std::string host_;
  std::unique_ptr<Tls> tls_;
  bool established_ = false;
  std::string inbox_;
  std::size_t taken_ = 0;
  std::string outbox_;
  std::size_t sent_ = 0;
  std::string failure_;
  Counters counters_;
};

}  // namespace plugfest::cluster
