#include "plugins/mesh/transfer/lane.h"

#include "plugins/mesh/clock.h"
#include "plugins/mesh/log.h"

namespace mesh {

namespace {

// Receives are posted again when a batch of them was used.
constexpr std::uint32_t receive_count(const LaneNeeds& needs) {
  return needs.receives + Lane::kNotices + ReceiveRing::kBatch;
}
static_assert(Lane::kNotices % ReceiveRing::kBatch == 0);

}  // namespace

Lane::Lane(const LaneStart& start, const LaneNeeds& needs)
    : device_(start.device),
      announcements_(std::make_unique<StagingMemory>(
          start.device, needs.announcement_bytes + receive_count(needs) * needs.receive_bytes)),
      bounce_(needs.bounce_bytes > 0 ? std::make_unique<StagingMemory>(start.device, needs.bounce_bytes,
                                                                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
                                     : nullptr),
      receives_(receive_count(needs), needs.receive_bytes, *announcements_),
      queue_pair_(std::make_unique<QueuePair>(
          start.device, start.local,
          QueuePair::Depth{
              .send = needs.sends + kNotices, .receive = receive_count(needs), .inline_bytes = needs.inline_bytes},
          needs.remote_write ? IBV_ACCESS_REMOTE_WRITE : 0)) {
  if (const int error = receives_.post_all(*queue_pair_))
    throw system_failure("post receives to " + device_->name(), error);
}

void Lane::connect(const Endpoint& remote, const Transport& transport) {
  remote_ = remote;
  work_.check_progress(coarse_now_ms());
  queue_pair_->connect(remote, transport);
}

void Lane::stop() {
  state_ = State::kStopped;
  stopped_ms_ = coarse_now_ms();
  queue_pair_->stop();
}

}  // namespace mesh
