// Keeps messages in flight on any number of comms, and measures the time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "harness/rank/consumption.h"
#include "harness/rank/memory.h"
#include "harness/rank/plugin_calls.h"
#include "harness/rank/server.h"
#include "harness/rank/subject.h"
#include "harness/rank/thread.h"

namespace plugfest::rank {

namespace {

constexpr std::size_t kMaxBuffers = 64;

// Memory registered on one comm: `count` buffers of `size` bytes, each page touched.
class MeasuredMemory {
 public:
  MeasuredMemory(void* comm, std::size_t size, std::size_t count)
      : comm_(comm),
        stride_((size + 63) / 64 * 64),
        memory_(map_guarded(std::max<std::size_t>(stride_ * count, 1), false)) {
    auto* bytes = static_cast<volatile std::byte*>(pointer(memory_.address));
    for (std::size_t at = 0; at < stride_ * count; at += page_size()) bytes[at] = std::byte{1};
    call_plugin("regMr", [&] {
      return subject().reg_mr(comm_, pointer(memory_.address), std::max<std::size_t>(stride_ * count, 1),
                              abi::kPointerHost, &mhandle_);
    });
  }
  MeasuredMemory(MeasuredMemory&& other) noexcept = delete;
  // Keeps the memory mapped: after a failure, operations may be in flight.
  ~MeasuredMemory() = default;

  void release() {
    call_plugin("deregMr", [&] { return subject().dereg_mr(comm_, mhandle_); });
    unmap_guarded(memory_);
  }
  void* buffer(std::size_t index) const { return static_cast<std::byte*>(pointer(memory_.address)) + index * stride_; }
  void* mhandle() const { return mhandle_; }

 private:
  void* comm_;
  std::size_t stride_;
  Mapping memory_;
  void* mhandle_ = nullptr;
};

// Sends the first buffer. Returns null if the plugin defers the send.
void* post_send(void* comm, const MeasuredMemory& memory, std::size_t size, int tag) {
  void* request = nullptr;
  call_plugin("isend",
              [&] { return subject().isend(comm, memory.buffer(0), size, tag, memory.mhandle(), nullptr, &request); });
  return request;
}

// Receives into `count` buffers from `first` on, with the tags 0 to count-1. Returns null if the plugin defers it.
void* post_receive(void* comm, const MeasuredMemory& memory, std::size_t first, std::size_t size, std::size_t count) {
  std::array<void*, kMaxBuffers> data, mhandles, phandles = {};
  std::array<std::size_t, kMaxBuffers> sizes;
  std::array<int, kMaxBuffers> tags;
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = memory.buffer(first + i);
    sizes[i] = size;
    tags[i] = static_cast<int>(i);
    mhandles[i] = memory.mhandle();
  }
  void* request = nullptr;
  call_plugin("irecv", [&] {
    return subject().irecv(comm, static_cast<int>(count), data.data(), sizes.data(), tags.data(), mhandles.data(),
                           phandles.data(), &request);
  });
  return request;
}

// Calls irecvConsumed for completed receives, if the plugin has it. NCCL calls it when the GPU has read the buffers.
class Consumer {
 public:
  Consumer(void* comm, std::uint32_t width)
      : comm_(comm), width_(static_cast<int>(width)), needed_(subject().has(plugin::Slot::kIrecvConsumed)) {}

  void completed(void* request) {
    if (needed_) due_.push_back(request);
  }
  // Call it before each receive. `in_flight`: receives that are not done.
  void make_room(std::size_t in_flight) {
    while (!due_.empty() && in_flight + due_.size() >= most_receives(width_)) consume_oldest();
  }
  void consume_all() {
    while (!due_.empty()) consume_oldest();
  }

 private:
  void consume_oldest() {
    call_plugin("irecvConsumed", [&] { return subject().irecv_consumed(comm_, width_, due_.front()); });
    due_.pop_front();
  }

  void* comm_;
  int width_;
  bool needed_;
  std::deque<void*> due_;
};

bool is_done(void* request) {
  int done = 0;
  std::array<int, 64> sizes = {};
  call_plugin("test", [&] { return subject().test(request, &done, sizes.data()); });
  return done != 0;
}

// One comm with its operations in flight, oldest first. A receive takes `group` messages, a send one.
//
// All operations use the same memory, as in perftest: with separate memory, large messages would measure the
// processor's caches.
class Lane {
 public:
  Lane(const Throughput& plan, std::uint64_t comm, bool sends)
      : plan_(plan),
        comm_(pointer(comm)),
        sends_(sends),
        width_(sends ? 1 : plan.group),
        depth_(sends ? plan.window * plan.group : plan.window),
        memory_(comm_, plan.size, width_),
        consumer_(comm_, width_) {}

  // Posts as many operations as the plugin accepts and tests the oldest one. Returns whether any made progress.
  bool step() {
    bool moved = false;
    while (posted_ < plan_.count && requests_.size() < depth_) {
      consumer_.make_room(requests_.size());
      void* request = sends_ ? post_send(comm_, memory_, plan_.size, static_cast<int>(posted_ % plan_.group))
                             : post_receive(comm_, memory_, 0, plan_.size, width_);
      if (request == nullptr) break;
      requests_.push_back(request);
      posted_ += width_;
      moved = true;
    }
    while (!requests_.empty() && is_done(requests_.front())) {
      if (!sends_) consumer_.completed(requests_.front());
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
  void release() {
    consumer_.consume_all();
    memory_.release();
  }

 private:
  const Throughput& plan_;
  void* comm_;
  bool sends_;
  std::uint32_t width_;
  std::uint32_t depth_;
  MeasuredMemory memory_;
  Consumer consumer_;
  std::deque<void*> requests_;
  std::uint64_t posted_ = 0;
  std::uint64_t done_ = 0;
};

class Player {
 public:
  Player(const RoundTrips& plan, bool& stalled)
      : plan_(plan),
        stalled_(stalled),
        from_(pointer(plan.send_comm), plan.size, 1),
        to_(pointer(plan.receive_comm), plan.size, 2),
        consumer_(pointer(plan.receive_comm), 1),
        stall_(plan.timeout_ns) {}

  // Posts the receive of the next message before it sends, as NCCL does.
  void run(std::vector<std::uint32_t>& half_trips) {
    post_next();
    for (std::uint64_t i = 0; i < plan_.count; ++i) {
      if (plan_.starts) {
        const std::int64_t start = now_ns();
        send();
        receive(i);
        half_trips.push_back(short_duration((now_ns() - start) / 2));
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
    consumer_.completed(receiving_);
    consumer_.consume_all();
    if (index + 1 < plan_.count) post_next();
  }
  template <typename Condition>
  void until(const Condition& condition, const char* otherwise) {
    wait_until(condition, otherwise, stall_, stalled_, [] { return false; });
  }

  const RoundTrips& plan_;
  bool& stalled_;
  MeasuredMemory from_;
  MeasuredMemory to_;
  Consumer consumer_;
  StallTimer stall_;
  void* receiving_ = nullptr;
  std::uint64_t posted_ = 0;
};

}  // namespace

ThroughputAnswer execute(const Throughput& request) {
  ThroughputAnswer answer;
  if (request.group == 0 || request.group > kMaxBuffers || request.count % request.group != 0 || request.window == 0)
    throw WireError("the messages of a throughput measurement form no groups");
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
