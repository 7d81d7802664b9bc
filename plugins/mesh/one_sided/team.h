// The ranks of a collComm, which exchange messages through comms of the net.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "plugins/mesh/handshake/handle.h"
#include "plugins/mesh/state.h"

namespace mesh::one_sided {

using Bytes = std::vector<std::uint8_t>;

/// Connects each rank with each rank, including itself, in both directions. One thread at a time, unless stated
/// otherwise.
class Team {
 public:
  /// Largest message.
  static constexpr std::size_t kMaxMessage = 8192;
  /// Maximum time without a new connection while ranks are not connected.
  static constexpr std::int64_t kConnectLimitMs = 60'000;

  /// Waits until all ranks have called it. `handles`: one for each rank. `listener`: the result of listen for the
  /// handle of `rank`. Errors: Failure, for example if a rank that was connected has ended, or after `limit_ms` without
  /// a new connection.
  Team(State& state, const std::vector<Handle>& handles, std::size_t rank, void* listener, const Transport& transport,
       std::int64_t limit_ms = kConnectLimitMs);
  ~Team();

  std::size_t size() const { return size_; }
  std::size_t rank() const { return rank_; }

  /// The local ends of the links to a rank, in the same order on both sides. `accepted`: whether to return the links of
  /// the connection that the other rank has made; for the own rank, these are the other ends. Errors: Failure if relays
  /// connect the rank.
  std::vector<LaneStart> links(std::size_t rank, bool accepted) const;

  /// Sends a message to each rank and returns the received messages. Waits until all ranks have called it. `make`
  /// returns the messages, one for each rank, of 1 to kMaxMessage bytes. If it throws on any rank, the exchange fails
  /// on all ranks. Errors: Failure.
  std::vector<Bytes> exchange(const std::function<std::vector<Bytes>()>& make);
  /// Whether a rank has ended or closed the collComm, as far as its connection tells by now. Any thread; false while
  /// another one exchanges messages.
  bool has_lost(std::size_t rank);

 private:
  template <typename End>
  class Direction;

  void connect(State& state, const std::vector<Handle>& handles, void* listener, const Transport& transport,
               std::int64_t limit_ms);
  std::vector<Bytes> transfer(const std::vector<Bytes>& messages);

  std::size_t rank_, size_;
  std::mutex mutex_;  ///< protects the next two members after the constructor
  std::vector<Direction<SendComm>> outgoing_;
  std::vector<Direction<RecvComm>> incoming_;
};

}  // namespace mesh::one_sided
