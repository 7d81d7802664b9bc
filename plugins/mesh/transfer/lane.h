// One of the pairs of queue pairs that carry a connection.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "plugins/mesh/transfer/flush.h"
#include "plugins/mesh/transfer/profiler_events.h"
#include "plugins/mesh/transfer/queue_pair.h"
#include "plugins/mesh/transfer/receive_ring.h"

namespace mesh {

/// Where a lane starts on this host.
struct LaneStart {
  std::shared_ptr<const Device> device;
  Address local;  ///< an address of the device
};

/// What a comm needs on each lane.
struct LaneNeeds {
  std::uint32_t sends = 0;             ///< maximum number of work requests in flight, without notices
  std::uint32_t inline_bytes = 0;      ///< see QueuePair::Depth
  std::uint32_t receives = 0;          ///< maximum number of messages that arrive at once, without notices; n * 16
  std::size_t receive_bytes = 0;       ///< maximum size of such a message
  std::size_t announcement_bytes = 0;  ///< memory for announcements to send
  std::size_t bounce_bytes = 0;        ///< memory that the peer may write to at any time
  bool remote_write = false;           ///< the peer may write to registered memory
};

/// A queue pair of a connection, with what is posted to it and not acknowledged yet.
///
/// A work request that the peer counts carries an immediate value or is a SEND; both sides count these, modulo 2^24.
/// When a lane fails, each side stops its queue pair and tells the peer on the other lanes how many it received. Work
/// requests complete in order, so this number says which ones the peer has, and the others are posted to other lanes.
/// Not thread-safe.
class Lane {
 public:
  /// A posted work request, as its comm wants to recognise it.
  struct Work {
    std::uint16_t request = 0;
    std::uint16_t generation = 0;  ///< of the request
    std::uint8_t part = 0;
    bool counted = false;  ///< whether the peer counts it
    std::uint32_t bytes = 0;
  };
  /// Maximum number of work requests in flight.
  static constexpr std::uint32_t kMostInFlight = 256;
  static constexpr std::uint32_t kCountMask = 0xffffff;
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

  /// Connects to the peer's queue pair. Errors: Failure.
  void connect(const Endpoint& remote, const Transport& transport);
  const Address& peer() const { return remote_.gid; }
  /// "roce_eth1", or "relays"
  std::string way() const { return queue_pair_->stream() != nullptr ? "relays" : device_->name(); }
  /// "NIC roce_eth1 to 192.168.101.2"
  std::string text() const { return "NIC " + device_->name() + " to " + to_string(remote_.gid); }

  /// For the lane's NIC. Errors: Failure.
  std::unique_ptr<Flush> make_flush(std::uint32_t depth) const {
    return std::make_unique<Flush>(device_, endpoint().gid, depth);
  }

  /// The profiler's event for work on this lane.
  ProfilerEvents::Event event(int opcode, std::size_t bytes) const {
    return {.device = device_->index(),
            .wr_id = next_id(),
            .opcode = opcode,
            .qpNum = static_cast<int>(endpoint().queue_pair),
            .length = bytes};
  }

  /// Number of work requests that can still be posted.
  std::uint32_t room() const { return kMostInFlight - in_flight(); }
  std::uint32_t in_flight() const { return posted_ - done_; }
  std::uint64_t bytes_in_flight() const { return bytes_in_flight_; }

  /// The wr_id of a notice: the id of the work before it, so that its completion acknowledges no later work.
  std::uint64_t notice_id() const { return kNotice | ((posted_ - 1) & kIdMask); }
  static bool is_notice(std::uint64_t id) { return (id & kNotice) != 0; }
  std::uint32_t notices_in_flight = 0;

  /// The wr_id of the next work request that is posted.
  std::uint64_t next_id() const { return posted_ & kIdMask; }
  /// Notes a posted work request. Precondition: room() > 0.
  void add(const Work& work) {
    work_[posted_++ % kMostInFlight] = work;
    bytes_in_flight_ += work.bytes;
  }
  /// Takes the oldest posted work request if its id is not after `id`, the wr_id of a successful completion; null if
  /// there is none. The pointer is valid until the next `add`.
  const Work* take_done(std::uint64_t id) {
    // Ids wrap; the distance tells which of two ids within the queue's depth is older.
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(id) - done_) < 0 ? nullptr : take_oldest();
  }
  /// Takes the oldest work request, whatever its id.
  const Work* take_oldest() {
    if (in_flight() == 0) return nullptr;
    const Work& work = work_[done_++ % kMostInFlight];
    bytes_in_flight_ -= work.bytes;
    acknowledged_ += work.counted ? 1 : 0;
    return &work;
  }
  /// Number of counted work requests that are acknowledged, modulo 2^24.
  std::uint32_t acknowledged() const { return acknowledged_ & kCountMask; }

  /// Counts what this side received on the lane.
  void count_received() { ++received_; }
  /// Modulo 2^24.
  std::uint32_t received() const { return received_ & kCountMask; }

  /// Whether the lane carries traffic.
  bool up() const { return state_ == State::kUp; }
  /// Whether the peer has stopped its queue pair, too, so that no packet of the lane is accepted any more.
  bool closed() const { return peer_received_.has_value(); }
  /// What the peer received on this lane. Precondition: closed().
  std::uint32_t peer_received() const { return *peer_received_; }
  void peer_stopped(std::uint32_t received) { peer_received_ = received; }
  /// Whether work is left that waits for the peer's notice.
  bool settled() const { return state_ == State::kSettled; }
  void settle() { state_ = State::kSettled; }
  /// Stops the queue pair.
  void stop();
  /// When it was stopped; coarse clock.
  std::int64_t stopped_ms() const { return stopped_ms_; }

  /// Looks whether work was done since the last look, or none is in flight. `now_ms`: of the coarse clock.
  void look(std::int64_t now_ms) {
    if (in_flight() != 0 && done_ == done_at_look_) return;
    done_at_look_ = done_;
    quiet_since_ms_ = now_ms;
  }
  /// The last look that found progress.
  std::int64_t quiet_since_ms() const { return quiet_since_ms_; }

 private:
  static constexpr std::uint64_t kIdMask = 0xffffffff;
  static constexpr std::uint64_t kNotice = std::uint64_t{1} << 32;
  enum class State : std::uint8_t { kUp, kStopped, kSettled };

  std::shared_ptr<const Device> device_;
  std::unique_ptr<StagingMemory> announcements_;
  std::unique_ptr<StagingMemory> bounce_;
  ReceiveRing receives_;
  std::unique_ptr<QueuePair> queue_pair_;
  Endpoint remote_;
  State state_ = State::kUp;
  std::array<Work, kMostInFlight> work_;
  std::uint32_t posted_ = 0;
  std::uint32_t done_ = 0;
  std::uint64_t bytes_in_flight_ = 0;
  std::uint32_t acknowledged_ = 0;
  std::uint32_t received_ = 0;
  std::optional<std::uint32_t> peer_received_;
  std::uint32_t done_at_look_ = 0;
  std::int64_t quiet_since_ms_ = 0;
  std::int64_t stopped_ms_ = 0;
};

}  // namespace mesh
