// Detects that the peer of a connection has left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plugins/mesh/handshake/socket.h"
#include "plugins/mesh/relay/stream.h"

namespace mesh {

/// Watches the TCP connection of the handshake, which stays open as long as the connection is used. Not thread-safe.
class PeerMonitor {
 public:
  /// Takes the TCP connection after the handshake.
  void start(PeerLink link, const ConnectionKey& key) {
    link_ = std::move(link);
    key_ = key;
  }
  /// Watches the stream of a relayed connection instead; it must outlive this object's use.
  void start(Stream& stream) { stream_ = &stream; }

  /// Reads what the peer has sent.
  void read();
  /// Whether the peer closed the connection or its process has ended.
  bool left() const { return left_; }
  /// How many messages the peer had received when it closed the connection; nullopt if it sent no valid Goodbye.
  std::optional<std::uint64_t> messages_received_by_peer() const { return messages_received_; }
  /// Why the peer is considered gone: "it closed the connection".
  std::string reason() const {
    if (stream_ != nullptr) return stream_->end_reason();
    return link_.ended() ? link_.end_reason() : "it sent an invalid message";
  }

  /// Whether the connection ended because no packet reached the peer any more, not by the peer.
  bool unreachable() const { return link_.unreachable(); }

  /// Reads at most once per tick of the coarse clock, whose value is `now_ms`. Returns true from 20 ms after the peer
  /// left, when the NIC has delivered what arrived before.
  bool poll(std::int64_t now_ms);

  /// Tells the peer that this side closes the connection and how many messages it received.
  void say_goodbye(std::uint64_t messages_received);

 private:
  PeerLink link_;
  ConnectionKey key_;
  Stream* stream_ = nullptr;
  bool left_ = false;
  std::optional<std::uint64_t> messages_received_;
  std::int64_t polled_at_ms_ = 0;
  std::int64_t left_at_ms_ = 0;
};

}  // namespace mesh
