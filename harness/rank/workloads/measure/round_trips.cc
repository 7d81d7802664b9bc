// Sends one message to and fro, and measures half of each round trip.
#include <algorithm>

#include "harness/rank/calls/dispatch.h"
#include "harness/rank/workloads/measure/posting.h"
#include "harness/rank/workloads/stall_timer.h"

namespace plugfest::rank {

namespace {

class Player {
 public:
  Player(const RoundTrips& plan, bool& stalled)
      : plan_(plan),
        stalled_(stalled),
        from_(pointer(plan.send_comm), plan.size, 1),
        to_(pointer(plan.receive_comm), plan.size, 2),
        stall_(plan.timeout_ns) {}

  /// The receive of the next message is posted before this side sends, as NCCL does.
  void run(std::vector<std::uint32_t>& half_trips) {
    post_next();
    for (std::uint64_t i = 0; i < plan_.count; ++i) {
      if (plan_.starts) {
        const std::int64_t start = now_ns();
        send();
        receive(i);
        half_trips.push_back(static_cast<std::uint32_t>(std::min<std::int64_t>((now_ns() - start) / 2, UINT32_MAX)));
      } else {
        receive(i);
        send();
      }
    }
    from_.release();
    to_.release();
  }

 private:
  void post_next() {
    until(
        [&] {
          return (receiving_ = post_receive(pointer(plan_.receive_comm), to_, posted_ % 2, plan_.size, 1)) != nullptr;
        },
        "irecv was never accepted");
    ++posted_;
  }
  void send() {
    void* request = nullptr;
    until([&] { return (request = post_send(pointer(plan_.send_comm), from_, plan_.size, 0)) != nullptr; },
          "isend was never accepted");
    until([&] { return is_done(request); }, "a send never completed");
  }
  void receive(std::uint64_t index) {
    until([&] { return is_done(receiving_); }, "a message never arrived");
    if (index + 1 < plan_.count) post_next();
  }
  template <class Condition>
  void until(const Condition& condition, const char* otherwise) {
    while (!condition()) {
      if (!stall_.expired()) continue;
      stalled_ = true;
      throw MeasurementFailed(otherwise);
    }
    stall_.restart();
  }

  const RoundTrips& plan_;
  bool& stalled_;
  MeasuredMemory from_;
  MeasuredMemory to_;
  StallTimer stall_;
  void* receiving_ = nullptr;
  std::uint64_t posted_ = 0;
};

}  // namespace

RoundTripsAnswer execute(const RoundTrips& request) {
  RoundTripsAnswer answer;
  std::vector<std::uint32_t> half_trips;
  answer.start_ns = now_ns();
  try {
    Player(request, answer.stalled).run(half_trips);
  } catch (const MeasurementFailed& failed) {
    answer.broken = failed.what();
  }
  answer.end_ns = now_ns();
  std::sort(half_trips.begin(), half_trips.end());
  for (const std::uint32_t per_mille : request.per_mille) {
    if (half_trips.empty()) break;
    const std::size_t last = half_trips.size() - 1;
    answer.half_trip_ns.push_back(half_trips[std::min(last, half_trips.size() * per_mille / 1000)]);
  }
  return answer;
}

}  // namespace plugfest::rank
