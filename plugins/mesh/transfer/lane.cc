// The list of posted work requests.
#include "plugins/mesh/transfer/lane.h"

#include "plugins/mesh/clock.h"

namespace mesh {

Lane::Lane(const LaneStart& start, QueuePair::Depth depth, bool remote_write)
    : device_(start.device),
      queue_pair_(std::make_unique<QueuePair>(
          start.device, start.local,
          QueuePair::Depth{.send = depth.send + kNotices, .receive = depth.receive, .inline_bytes = depth.inline_bytes},
          remote_write ? IBV_ACCESS_REMOTE_WRITE : 0)) {}

void Lane::connect(const Endpoint& remote, const Transport& transport) {
  remote_ = remote;
  queue_pair_->connect(remote, transport);
}

void Lane::add(const Work& work) {
  if (in_flight() == 0) quiet_since_ms_ = coarse_now_ms();
  work_[posted_++ % kMostInFlight] = work;
  bytes_in_flight_ += work.bytes;
}

std::optional<Lane::Work> Lane::take_oldest() {
  if (in_flight() == 0) return std::nullopt;
  const Work work = work_[done_++ % kMostInFlight];
  bytes_in_flight_ -= work.bytes;
  if (work.counted) acknowledged_ = (acknowledged_ + 1) & kCountMask;
  return work;
}

std::optional<Lane::Work> Lane::take_done(std::uint64_t id) {
  // Ids wrap; the distance tells which of two ids within the queue's depth is older.
  if (static_cast<std::int32_t>(static_cast<std::uint32_t>(id) - done_) < 0) return std::nullopt;
  return take_oldest();
}

void Lane::stop() {
  state_ = State::kStopped;
  stopped_ms_ = coarse_now_ms();
  queue_pair_->stop();
}

}  // namespace mesh
