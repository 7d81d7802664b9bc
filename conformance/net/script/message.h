// Sends messages between two endpoints and checks what arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "harness/control/script.h"

namespace plugfest::conformance {

/// Memory of a rank, registered on one of its comms.
struct Registered {
  control::Memory memory;
  control::Registration registration;

  control::Buffer buffer() const { return registration; }
  control::Buffer buffer(std::size_t offset, std::size_t length) const { return registration.buffer(offset, length); }
  control::Slice slice(std::size_t offset, std::size_t length) const { return memory.sub(offset, length); }
};
Registered allocate(control::Rank rank, const control::Comm& comm, std::size_t size,
                    control::Placement placement = control::Placement::kEnd);

/// A connection with registered memory at both endpoints.
struct Stream {
  control::SendComm send;
  control::RecvComm receive;
  Registered from;
  Registered to;
};
/// Connects `sender` to `receiver` `count` times. Each connection gets `size` bytes of memory at both endpoints.
std::vector<Stream> connect_streams(const control::Endpoint& sender, const control::Endpoint& receiver,
                                    std::size_t count, std::size_t size);

/// A message for `deliver`.
struct Message {
  std::size_t size = 0;
  /// Determines the content. Each message of a rule has its own seed.
  std::uint64_t seed = 0;
  int tag = 0;
  /// Size of the receive in bytes; nullopt: `size`.
  std::optional<std::size_t> posted_size = std::nullopt;
};

/// Sends new content in `from` to `to`, and requires that it arrives. `what` names the message. Returns the size that
/// test reported to the receiver. Errors: `Broken`, and those of the calls.
int transfer(control::Rank sender, const control::SendComm& send, const control::Buffer& from, control::Rank receiver,
             const control::RecvComm& receive, const control::Buffer& to, std::uint64_t seed, const std::string& what,
             int tag = 0);
/// Allocates memory, sends one message, and requires that it arrives. Returns the size that test reported to the
/// receiver. Errors: `Broken`, and those of the calls.
int deliver(const control::Endpoint& sender, const control::SendComm& send, const control::Endpoint& receiver,
            const control::RecvComm& receive, const Message& message);
inline int deliver(const control::Endpoint& sender, const control::Endpoint& receiver,
                   const control::Connection& connection, const Message& message) {
  return deliver(sender, connection.send, receiver, connection.receive, message);
}

/// Connects and delivers one message: a plugin may defer receives until its first message has prepared the connection.
control::Connection connect_and_deliver(const control::Endpoint& from, const control::Endpoint& to, std::uint64_t seed);
/// Posts up to `count` receives of `size` bytes each, to successive parts of `to`, before anything is sent. Stops at a
/// receive that the plugin still defers after many calls, and returns the requests of the others.
/// Errors: `NotApplicable` when the plugin defers the first one, as it may until the sender calls isend.
std::vector<control::Request> post_ahead(const control::RecvComm& comm, const Registered& to, std::size_t size,
                                         std::size_t count);
/// Requires that `slice` holds the pattern of `seed`. `what` names the message: "message 3 (1000 bytes, tag 7)".
void require_content(control::Rank rank, const control::Slice& slice, std::uint64_t seed, const std::string& what);
/// Requires that test reported the size that was sent.
void require_size(const std::string& rank, int reported, std::size_t sent, const std::string& what);

/// Calls `step` at least `count` times while the rank's progress threads stream messages over `connection`. Starts
/// another stream when one ends before. Errors: those of the calls and of the streams.
void during_streams(const control::Connection& connection, std::mt19937_64& random, int count,
                    const std::function<void()>& step);

}  // namespace plugfest::conformance
