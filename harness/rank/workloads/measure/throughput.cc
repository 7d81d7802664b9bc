// Keeps messages in flight on any number of comms, and measures the time.
#include <algorithm>
#include <deque>

#include "harness/rank/calls/dispatch.h"
#include "harness/rank/workloads/measure/posting.h"
#include "harness/rank/workloads/stall_timer.h"

namespace plugfest::rank {

namespace {

/// One comm with its operations in flight, oldest first. A receive takes `group` messages, a send one.
///
/// All operations use the same memory, as those of perftest: with memory of their own, large messages would measure the
/// processor's caches.
class Lane {
 public:
  Lane(const Throughput& plan, std::uint64_t comm, bool sends)
      : plan_(plan),
        comm_(pointer(comm)),
        sends_(sends),
        width_(sends ? 1 : plan.group),
        depth_(sends ? plan.window * plan.group : plan.window),
        memory_(comm_, plan.size, width_) {}

  /// Posts as much as the plugin takes and tests the oldest operation. Returns whether anything moved.
  bool step() {
    bool moved = false;
    while (posted_ < plan_.count && requests_.size() < depth_) {
      void* request = sends_ ? post_send(comm_, memory_, plan_.size, static_cast<int>(posted_ % plan_.group))
                             : post_receive(comm_, memory_, 0, plan_.size, width_);
      if (request == nullptr) break;
      requests_.push_back(request);
      posted_ += width_;
      moved = true;
    }
    while (!requests_.empty() && is_done(requests_.front())) {
      requests_.pop_front();
      done_ += width_;
      moved = true;
    }
    return moved;
  }
  bool done() const { return done_ >= plan_.count; }
  std::string describe() const {
    return fmt::format("{} of {} {} are done", done_, plan_.count, sends_ ? "sends" : "receives");
  }
  void release() { memory_.release(); }

 private:
  const Throughput& plan_;
  void* comm_;
  bool sends_;
  std::uint32_t width_;
  std::uint32_t depth_;
  MeasuredMemory memory_;
  std::deque<void*> requests_;
  std::uint64_t posted_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace

ThroughputAnswer execute(const Throughput& request) {
  ThroughputAnswer answer;
  if (request.group == 0 || request.group > kMostBuffers || request.count % request.group != 0 || request.window == 0) {
    throw WireError("the messages of a throughput measurement form no groups");
  }
  try {
    std::deque<Lane> lanes;
    for (const std::uint64_t comm : request.receive_comms) lanes.emplace_back(request, comm, false);
    for (const std::uint64_t comm : request.send_comms) lanes.emplace_back(request, comm, true);
    StallTimer stall(request.timeout_ns);
    answer.start_ns = now_ns();
    while (!std::all_of(lanes.begin(), lanes.end(), [](const Lane& lane) { return lane.done(); })) {
      bool moved = false;
      for (Lane& lane : lanes) moved |= lane.step();
      if (moved) {
        stall.restart();
      } else if (stall.expired()) {
        const auto stuck = std::find_if(lanes.begin(), lanes.end(), [](const Lane& lane) { return !lane.done(); });
        answer.stalled = true;
        throw MeasurementFailed("no progress: " + stuck->describe());
      }
    }
    answer.end_ns = now_ns();
    for (Lane& lane : lanes) lane.release();
  } catch (const MeasurementFailed& failed) {
    answer.broken = failed.what();
    answer.end_ns = now_ns();
  }
  return answer;
}

}  // namespace plugfest::rank
