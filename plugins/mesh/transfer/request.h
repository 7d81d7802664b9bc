// Requests, the posted work requests of their queue pairs, and the events for NCCL's profiler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "harness/abi/profiler.h"

namespace mesh {

/// The profiler's events of the requests of one comm: at most 32 of each, one for each part of its data. Not
/// thread-safe. Allocates at the first event, so a comm without a profiler costs nothing.
class ProfilerEvents {
 public:
  using Event = plugfest::abi::ProfilerQueuePairEvent;
  using Callback = plugfest::abi::ProfilerCallback;

  /// `requests`: maximum number of requests. `parts`: maximum number of events of a request.
  ProfilerEvents(std::size_t requests, std::size_t parts) : requests_(requests), parts_(parts) {}

  /// Null: no event is reported.
  void set_callback(Callback callback) { callback_ = callback; }
  bool enabled() const { return callback_ != nullptr; }

  /// Starts an event under `parent`, the phandle that NCCL passed; null starts none. Precondition: the event of this
  /// part is not started.
  void start(std::size_t request, std::size_t part, void* parent, const Event& event) {
    if (parent == nullptr || callback_ == nullptr) return;
    if (started_.empty()) {
      started_.resize(requests_);
      handles_.resize(requests_ * parts_);
    }
    Event passed = event;
    void*& handle = handles_[request * parts_ + part];
    handle = nullptr;
    callback_(&handle, plugfest::abi::kProfilerNetStart, parent, plugfest::abi::kProfilerQueuePairId, &passed);
    started_[request] |= 1u << part;
  }
  /// Stops the event if it is started.
  void stop(std::size_t request, std::size_t part) {
    if (started_.empty() || (started_[request] >> part & 1) == 0) return;
    started_[request] &= ~(1u << part);
    callback_(&handles_[request * parts_ + part], plugfest::abi::kProfilerNetStop, nullptr,
              plugfest::abi::kProfilerQueuePairId, nullptr);
  }
  void stop_all(std::size_t request) {
    if (started_.empty()) return;
    for (std::size_t part = 0; started_[request] != 0; ++part) stop(request, part);
  }

 private:
  const std::size_t requests_;
  const std::size_t parts_;
  Callback callback_ = nullptr;
  std::vector<std::uint32_t> started_;  ///< one bit per event; empty before the first event
  std::vector<void*> handles_;
};

/// Identifies one outstanding send or receive, so that a stale or invalid pointer is recognized. The pointer is never
/// NULL and never 1, the value that NCCL presets.
struct RequestId {
  std::uint16_t comm = 0;        ///< index of the comm
  std::uint8_t comm_serial = 0;  ///< differs between comms with the same index
  std::uint8_t index = 0;        ///< index of the request in its comm
  std::uint16_t generation = 0;  ///< differs between requests with the same index

  void* pointer() const {
    return reinterpret_cast<void*>(kMark << 48 | std::uintptr_t{comm_serial} << 40 | std::uintptr_t{index} << 32 |
                                   std::uintptr_t{generation} << 16 | comm);
  }
  /// Returns nullopt if `pointer` is not the pointer of a request.
  static std::optional<RequestId> from(const void* pointer) {
    const auto value = reinterpret_cast<std::uintptr_t>(pointer);
    if (value >> 48 != kMark) return std::nullopt;
    return RequestId{.comm = static_cast<std::uint16_t>(value),
                     .comm_serial = static_cast<std::uint8_t>(value >> 40),
                     .index = static_cast<std::uint8_t>(value >> 32),
                     .generation = static_cast<std::uint16_t>(value >> 16)};
  }

 private:
  static constexpr std::uintptr_t kMark = 0x4d53;
};

/// The free indexes of a table of `kSize` entries. The index that became free last is taken first. Not thread-safe.
template <std::size_t kSize>
class FreeIndexes {
  static_assert(kSize <= 256);

 public:
  FreeIndexes() {
    for (std::size_t i = 0; i < kSize; ++i) indexes_[i] = static_cast<std::uint8_t>(kSize - 1 - i);
  }

  bool empty() const { return count_ == 0; }
  /// Precondition: not empty.
  std::size_t take() { return indexes_[--count_]; }
  void give_back(std::size_t index) { indexes_[count_++] = static_cast<std::uint8_t>(index); }

 private:
  std::array<std::uint8_t, kSize> indexes_;
  std::size_t count_ = kSize;
};

/// Indexes of a table of `kSize` entries, first in, first out. Not thread-safe.
template <std::size_t kSize>
class IndexQueue {
  static_assert(kSize <= 256);

 public:
  bool empty() const { return first_ == end_; }
  std::size_t size() const { return end_ - first_; }
  /// Precondition: fewer than kSize are in the queue.
  void push(std::size_t index) { indexes_[end_++ % kSize] = static_cast<std::uint8_t>(index); }
  /// Precondition of both: not empty.
  std::uint8_t front() const { return indexes_[first_ % kSize]; }
  void pop() { ++first_; }

 private:
  std::array<std::uint8_t, kSize> indexes_;
  std::size_t first_ = 0;
  std::size_t end_ = 0;
};

/// A posted work request, as its comm recognizes it.
struct Work {
  std::uint16_t request = 0;
  std::uint16_t generation = 0;  ///< generation of the request
  std::uint8_t part = 0;
  bool counted = false;  ///< whether the peer counts it
  std::uint32_t bytes = 0;
};

/// The unacknowledged work requests of a queue pair in the order of posting, in which they complete. Not
/// thread-safe.
class WorkQueue {
 public:
  /// Maximum number of work requests in flight.
  static constexpr std::uint32_t kMax = 256;

  /// Number of work requests that can still be posted.
  std::uint32_t room() const { return kMax - in_flight(); }
  std::uint32_t in_flight() const { return posted_ - done_; }
  std::uint64_t bytes_in_flight() const { return bytes_in_flight_; }

  /// The wr_id of the next work request that is posted.
  std::uint64_t next_id() const { return posted_ & kIdMask; }
  /// The wr_id of a notice: the id of the work before it, so that its completion acknowledges no later work.
  std::uint64_t notice_id() const { return kNotice | ((posted_ - 1) & kIdMask); }
  static bool is_notice(std::uint64_t id) { return (id & kNotice) != 0; }

  /// Notes a posted work request. Precondition: room() > 0.
  void add(const Work& work) {
    work_[posted_++ % kMax] = work;
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
    const Work& work = work_[done_++ % kMax];
    bytes_in_flight_ -= work.bytes;
    acknowledged_ += work.counted ? 1 : 0;
    return &work;
  }
  /// Number of counted work requests that were taken, modulo 2^32.
  std::uint32_t acknowledged() const { return acknowledged_; }

  /// Checks whether work was done since the last check, or none is in flight. `now_ms`: time of the coarse clock.
  void check_progress(std::int64_t now_ms) {
    if (in_flight() != 0 && done_ == done_at_check_) return;
    done_at_check_ = done_;
    quiet_since_ms_ = now_ms;
  }
  /// Time of the last check that found progress.
  std::int64_t quiet_since_ms() const { return quiet_since_ms_; }

 private:
  static constexpr std::uint64_t kIdMask = 0xffffffff;
  static constexpr std::uint64_t kNotice = std::uint64_t{1} << 32;

  std::array<Work, kMax> work_;
  std::uint32_t posted_ = 0;
  std::uint32_t done_ = 0;
  std::uint64_t bytes_in_flight_ = 0;
  std::uint32_t acknowledged_ = 0;
  std::uint32_t done_at_check_ = 0;
  std::int64_t quiet_since_ms_ = 0;
};

}  // namespace mesh
