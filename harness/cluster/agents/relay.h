// Forwards data of the channels of one rank: from descriptors of this process to messages, and back. The controller and
// the agent that starts the rank have one relay each for the rank.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fabric/system/file.h"
#include "harness/cluster/agents/link.h"

namespace plugfest::cluster {

/// Thread safety: none.
class Relay {
 public:
  enum class Kind : std::uint8_t { kSocket, kPipeToRead, kPipeToWrite };

  /// `send`: sends a message to the other relay of this rank.
  Relay(std::uint32_t rank, std::function<void(const Message&)> send) : rank_(rank), send_(std::move(send)) {}

  /// Takes one end of a channel. Errors: std::runtime_error.
  void add(std::uint32_t channel, Descriptor end, Kind kind);
  /// Processes a message kData or kClosed. Messages about a channel that does not exist, or no longer exists, are
  /// dropped. Errors: std::runtime_error.
  void deliver(Message message);

  /// Appends the descriptors to poll. `may_read`: false while the other side accepts no data.
  void add_to(std::vector<pollfd>& polled, bool may_read);
  /// Reads and writes as permitted by the descriptors from `next` on, which `add_to` appended, and moves `next` past
  /// them. Errors: std::runtime_error.
  void serve(std::vector<pollfd>::const_iterator& next);

 private:
  struct Chunk {
    std::string bytes;
    std::size_t sent = 0;
    /// The descriptor that is sent with the first byte.
    Descriptor passed = {};
  };
  struct End {
    Descriptor fd;
    Kind kind = Kind::kSocket;
    std::deque<Chunk> outbox = {};
  };

  /// read() and write() return false when the channel has ended.
  bool read(std::uint32_t channel, End& end);
  static bool write(End& end);
  void remove(std::uint32_t channel);

  const std::uint32_t rank_;
  const std::function<void(const Message&)> send_;
  std::map<std::uint32_t, End> ends_;
  std::uint32_t next_opened_ = kFirstOpened;
  std::vector<std::uint32_t> polled_;
};

}  // namespace plugfest::cluster
