// A connection between the controller and an agent, or between two agents: messages over TCP, with MACs.
//
// After the handshake (handshake.h), each direction carries batches: the size of all messages in it; the messages; and
// the first 16 bytes of HMAC(key, number of the batch, all before). A message is a header, six numbers: size of the
// body, kind, rank, channel, opened channel, host; and the body. Numbers have 32 bits, in little endian. So a message
// can neither be changed, nor repeated, nor left out. Nothing is encrypted.
//
// Before the handshake is complete, a side reads a fixed number of bytes and allocates nothing more.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "harness/cluster/wire/handshake.h"
#include "harness/cluster/wire/token.h"

namespace plugfest::cluster {

/// The agents' ranks have channels: these, and from kFirstOpened on those of the threads that were started later.
inline constexpr std::uint32_t kControlChannel = 0, kMainChannel = 1, kLogChannel = 2, kOutputChannel = 3;
inline constexpr std::uint32_t kFirstOpened = 4;

enum class Kind : std::uint32_t {
  // To an agent.
  kExamine = 1,  ///< JSON {plugin} → kFacts
  kStart,        ///< JSON {environment}: start rank `rank` → kStarted or kFailed
  kFreeze,       ///< → kFrozen
  kThaw,
  kEnd,       ///< kill the rank → kExited
  kPing,      ///< how many messages of the agent have arrived → kPong
  kMeasure,   ///< JSON of a PairOrder: measure a pair → kListening, later kMeasured. `rank`: number of the order
  kAssist,    ///< body of kListening: join that agent for the order with the number `rank`; → kFailed if that is
              ///< impossible
  kFinish,    ///< end the agent
  kWelcome,   ///< JSON {host_seconds, received}: → kHello that is accepted
  kRedirect,  ///< JSON {address, port, number}: → kHello; the agent is to join that agent, which carries its messages
  // From an agent.
  kHello = 32,  ///< JSON of a Hello: the first message
  kFacts,       ///< JSON
  kStarted,
  kFailed,     ///< text
  kFrozen,     ///< one byte: whether the rank is stopped; else it has ended
  kEnded,      ///< the rank has ended on its own
  kExited,     ///< wait status in decimal digits
  kPong,       ///< how many messages of the controller have arrived
  kListening,  ///< "10.0.0.1 41234": where the other agent of the order is to join
  kMeasured,   ///< JSON of a PairReport
  kGone,       ///< text: the connection of an agent to the one that carries its messages has ended
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
  /// Between the controller and an agent that carries messages of others: whose message it is. 0: of that agent itself.
  std::uint32_t host = 0;
};

/// When the peer has closed the connection, does not know the token or has sent something invalid, failure() says so,
/// and nothing more is sent or received. Thread safety: none.
class Link {
 public:
  using Side = Handshake::Side;
  static constexpr std::size_t kLargestBody = 1u << 20;
  /// A batch is closed when it is as large as this.
  static constexpr std::size_t kFullBatch = kLargestBody;

  /// Takes a connected TCP socket and makes it non-blocking. Errors: std::runtime_error.
  Link(Descriptor socket, Side side, const Token& token);

  int fd() const { return socket_.get(); }
  /// What to poll for `receive` and `flush`. `may_read`: false while nothing more can be passed on.
  pollfd polled(bool may_read = true) const {
    return {fd(), static_cast<short>((may_read ? POLLIN : 0) | (has_unsent() ? POLLOUT : 0)), 0};
  }
  /// Whether the peer has proved that it knows the token.
  bool established() const { return handshake_.complete(); }
  /// Adds a message to the batch. `body` has at most kLargestBody bytes. Call it once established.
  void gather(const Message& message);
  /// Adds a message to the batch and flushes.
  void send(const Message& message) {
    gather(message);
    flush();
  }
  /// Closes the batch and sends as much as fits.
  void flush();
  /// Sends all that is unsent; waits for that until `deadline_ns` (now_ns()).
  void flush_until(Nanoseconds deadline_ns);
  /// Whether a batch that is closed did not fit.
  bool has_unsent() const { return sent_ < outbox_.size(); }
  std::size_t unsent_bytes() const { return outbox_.size() - sent_ + batch_.size(); }
  /// Reads what has arrived and returns what is complete. Never waits.
  std::vector<Message> receive();
  /// One line; empty while the connection works.
  const std::string& failure() const { return failure_; }

  struct Counters {
    /// In both directions.
    std::uint64_t messages = 0, batches = 0, bytes = 0;
    /// Batches that only watch agents: kPing and kPong.
    std::uint64_t watching_batches = 0;
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
  bool take_batch(std::vector<Message>& messages);
  void close_batch();
  void count_batch(bool watches);

  Descriptor socket_;
  Handshake handshake_;
  std::uint64_t next_sent_ = 0, next_received_ = 0;
  std::string inbox_;
  std::size_t taken_ = 0;
  std::string outbox_;
  std::size_t sent_ = 0;
  std::string batch_;
  bool batch_watches_ = true;
  std::string failure_;
  Counters counters_;
};

}  // namespace plugfest::cluster
