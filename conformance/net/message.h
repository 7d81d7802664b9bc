// One message from end to end: memory, registration, transfer, comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "harness/control/script.h"

namespace plugfest::conformance {

/// Memory of one end, registered on a comm of that end.
struct Registered {
  control::Memory memory;
  control::Registration registration;

  control::Buffer buffer() const { return registration; }
  control::Buffer buffer(std::size_t offset, std::size_t length) const { return registration.buffer(offset, length); }
  control::Slice slice(std::size_t offset, std::size_t length) const { return memory.sub(offset, length); }
};
Registered allocate(control::Rank rank, const control::Comm& comm, std::size_t size,
                    control::Placement placement = control::Placement::kEnd);

struct Message {
  std::size_t size = 0;
  /// What its bytes are made of; no two messages of a rule share one.
  std::uint64_t seed = 0;
  int tag = 0;
  /// The receive is posted for this many bytes; nullopt: the message's own size.
  std::optional<std::size_t> posted_size = std::nullopt;
};

/// Sends one message in memory of its own and requires that it arrives, and that the receiver is told its size.
/// Errors: `Broken`, and those of the calls.
void deliver(const control::Endpoint& sender, const control::SendComm& send, const control::Endpoint& receiver,
             const control::RecvComm& receive, const Message& message);
inline void deliver(const control::Endpoint& sender, const control::Endpoint& receiver,
                    const control::Connection& connection, const Message& message) {
  deliver(sender, connection.send, receiver, connection.receive, message);
}

/// Requires that `slice` holds the pattern of `seed`; `what` names the message: "message 3 (1000 bytes, tag 7)".
void require_content(control::Rank rank, const control::Slice& slice, std::uint64_t seed, const std::string& what);
/// Requires that a receive reported the size that was sent.
void require_size(const std::string& rank, int reported, std::size_t sent, const std::string& what);

}  // namespace plugfest::conformance
