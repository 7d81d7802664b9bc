// The posted work of a queue pair that is not acknowledged yet.
#pragma once

#include <array>
#include <cstdint>

namespace mesh {

/// A posted work request, as its comm wants to recognise it.
struct Work {
  std::uint16_t request = 0;
  std::uint16_t generation = 0;  ///< of the request
  std::uint8_t part = 0;
  bool counted = false;  ///< whether the peer counts it
  std::uint32_t bytes = 0;
};

/// Work requests in the order of posting, which is also that of their completions. Not thread-safe.
class WorkQueue {
 public:
  /// Maximum number of work requests in flight.
  static constexpr std::uint32_t kMost = 256;

  /// Number of work requests that can still be posted.
  std::uint32_t room() const { return kMost - in_flight(); }
  std::uint32_t in_flight() const { return posted_ - done_; }
  std::uint64_t bytes_in_flight() const { return bytes_in_flight_; }

  /// The wr_id of the next work request that is posted.
  std::uint64_t next_id() const { return posted_ & kIdMask; }
  /// The wr_id of a notice: the id of the work before it, so that its completion acknowledges no later work.
  std::uint64_t notice_id() const { return kNotice | ((posted_ - 1) & kIdMask); }
  static bool is_notice(std::uint64_t id) { return (id & kNotice) != 0; }

  /// Notes a posted work request. Precondition: room() > 0.
  void add(const Work& work) {
    work_[posted_++ % kMost] = work;
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
    const Work& work = work_[done_++ % kMost];
    bytes_in_flight_ -= work.bytes;
    acknowledged_ += work.counted ? 1 : 0;
    return &work;
  }
  /// Number of counted work requests that were taken, modulo 2^32.
  std::uint32_t acknowledged() const { return acknowledged_; }

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

  std::array<Work, kMost> work_;
  std::uint32_t posted_ = 0;
  std::uint32_t done_ = 0;
  std::uint64_t bytes_in_flight_ = 0;
  std::uint32_t acknowledged_ = 0;
  std::uint32_t done_at_look_ = 0;
  std::int64_t quiet_since_ms_ = 0;
};

}  // namespace mesh
