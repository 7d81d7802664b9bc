// A lane: one of the queue pairs that carry a connection.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "plugins/mesh/transfer/queue_pair.h"
#include "plugins/mesh/transfer/request.h"
#include "plugins/mesh/transfer/slots.h"

namespace mesh {

/// The local end of a lane.
struct LaneStart {
  std::shared_ptr<const Device> device;
  Address local;  ///< an address of the device
};

/// The resources that a comm needs on each lane.
struct LaneNeeds {
  std::uint32_t sends = 0;             ///< maximum number of work requests in flight, without notices
  std::uint32_t inline_bytes = 0;      ///< see QueuePair::Depth
  std::uint32_t receives = 0;          ///< maximum number of messages that arrive at once, without notices; n * 16
  std::size_t receive_bytes = 0;       ///< maximum size of such a message
  std::size_t announcement_bytes = 0;  ///< memory for announcements to send
  std::size_t bounce_bytes = 0;        ///< memory that the peer may write to at any time
  bool remote_write = false;           ///< the peer may write to registered memory
};

/// A queue pair of a connection, with the posted work that is not acknowledged yet.
///
/// A work request that the peer counts carries an immediate value or is a SEND; both sides count these, modulo 2^24.
/// When a lane fails, each side stops its queue pair and tells the peer on the other lanes how many it received. Work
/// requests complete in order, so this number says which ones the peer has, and the others are posted to other lanes.
/// Not thread-safe.
class Lane {
 public:
  /// Space in the send queue for notices and pings, which are not in the list of work.
  static constexpr std::uint32_t kNotices = 16;

  /// Posts receives. Errors: Failure.
  Lane(const LaneStart& start, const LaneNeeds& needs);

  QueuePair& queue_pair() { return *queue_pair_; }
  /// Memory for announcements: those that arrive, by the wr_id of their receive, or those to send.
  const StagingMemory& announcements() const { return *announcements_; }
  /// The memory that the peer may write to at any time. Precondition: it was asked for.
  const StagingMemory& bounce() const { return *bounce_; }
  ReceiveRing& receives() { return receives_; }
  const Endpoint& endpoint() const { return queue_pair_->endpoint(); }
  const Device& device() const { return *device_; }
  const std::shared_ptr<const Device>& shared_device() const { return device_; }
  /// Whether relays connect the peer.
  bool relayed() const { return queue_pair_->stream() != nullptr; }

  /// Connects to the peer's queue pair. Errors: Failure.
  void connect(const Endpoint& remote, const Transport& transport);
  const Address& peer() const { return remote_.gid; }
  /// "roce_eth1", or "relays"
  std::string way() const { return relayed() ? "relays" : device_->name(); }
  /// "NIC roce_eth1 to 192.168.101.2"
  std::string text() const { return "NIC " + device_->name() + " to " + to_string(remote_.gid); }

  /// The profiler's event for work on this lane.
  ProfilerEvents::Event event(int opcode, std::size_t bytes) const {
    return {.device = device_->index(),
            .wr_id = work_.next_id(),
            .opcode = opcode,
            .qpNum = static_cast<int>(endpoint().queue_pair),
            .length = bytes};
  }

  WorkQueue& work() { return work_; }
  const WorkQueue& work() const { return work_; }
  std::uint32_t notices_in_flight = 0;

  /// Counts what this side received on the lane.
  void count_received() { ++received_; }
  /// The count modulo 2^24.
  std::uint32_t received() const { return received_ & kCountMask; }

  /// Whether the lane carries traffic.
  bool up() const { return state_ == State::kUp; }
  /// Whether the peer has also stopped its queue pair, so that no packet of the lane is accepted any more.
  bool closed() const { return peer_received_.has_value(); }
  /// The number of messages that the peer received on this lane, modulo 2^24. Precondition: closed().
  std::uint32_t peer_received() const { return *peer_received_; }
  void peer_stopped(std::uint32_t received) { peer_received_ = received; }
  /// Whether its work was passed on after both sides had stopped it.
  bool settled() const { return state_ == State::kSettled; }
  void settle() { state_ = State::kSettled; }
  void stop();
  /// The time of stop() on the coarse clock.
  std::int64_t stopped_ms() const { return stopped_ms_; }

 private:
  enum class State : std::uint8_t { kUp, kStopped, kSettled };

  std::shared_ptr<const Device> device_;
  std::unique_ptr<StagingMemory> announcements_;
  std::unique_ptr<StagingMemory> bounce_;
  ReceiveRing receives_;
  std::unique_ptr<QueuePair> queue_pair_;
  Endpoint remote_;
  State state_ = State::kUp;
  WorkQueue work_;
  std::uint32_t received_ = 0;
  std::optional<std::uint32_t> peer_received_;
  std::int64_t stopped_ms_ = 0;
};

}  // namespace mesh
