// The messages between the controller and one agent, whichever connections carry them.
//
// When a connection is lost and another one replaces it, each side tells the other how many messages have arrived, and
// the other sends those after them again: no message is lost, and none arrives twice. Each side keeps what the other
// has not acknowledged; kPing and kPong acknowledge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "harness/cluster/wire/link.h"

namespace plugfest::cluster {

/// Thread safety: none.
class Stream {
 public:
  using Way = std::function<void(const Message&)>;

  /// Keeps a message until it is acknowledged, and sends it if there is a way.
  void send(Message message);
  /// Takes a way to the other side, to which `received` messages have come, and sends it the others.
  void take(Way way, std::uint64_t received);
  /// Messages wait for another way.
  void lose_way() { way_ = nullptr; }
  bool has_way() const { return way_ != nullptr; }
  /// Sends what is not part of the stream, if there is a way: watches an agent or ends it.
  void send_beside(const Message& message) const;

  /// Counts a message that has come. Returns whether to acknowledge it at once.
  bool count(const Message& message);
  std::uint64_t received() const { return received_; }
  /// The other side has received this many messages, in decimal digits.
  void acknowledge(const std::string& received);
  std::size_t unacknowledged_bytes() const { return kept_bytes_; }

 private:
  void forget(std::uint64_t received);

  Way way_;
  std::deque<Message> kept_;
  std::size_t kept_bytes_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t received_ = 0;
  std::size_t owed_bytes_ = 0;
};

}  // namespace plugfest::cluster
