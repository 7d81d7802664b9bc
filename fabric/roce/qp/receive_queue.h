// Posted receives of one queue pair, or shared by several.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <mutex>

#include "fabric/roce/memory/lazy_array.h"
#include "fabric/roce/memory/scatter_gather_list.h"

namespace plugfest::roce {

/// A receive as it was posted.
struct PostedReceive {
  std::uint64_t wr_id = 0;
  int segment_count = 0;
  ibv_sge segments[kMaxSegments] = {};
};

/// A ring of posted receives. The kernel allocates its memory on first use.
///
/// Thread safety: every member from any thread.
class ReceiveQueue {
 public:
  /// Errors: std::bad_alloc.
  ReceiveQueue(std::uint32_t max_receives, std::uint32_t max_segments);

  /// Appends a list of receives. Returns 0, or ENOMEM if the ring is full, EINVAL if a request has too many segments;
  /// then `*bad` is the first request that was not posted.
  int post(ibv_recv_wr* list, ibv_recv_wr** bad);

  /// Takes the oldest receive, or returns false.
  bool take(PostedReceive& receive);

  /// Calls `limit_reached(context)` once, when a receive is taken and fewer than `limit` are left (shared receive
  /// queues; IBV_SRQ_LIMIT). 0 disarms.
  void set_limit(std::uint32_t limit, void (*limit_reached)(void*), void* context);

  std::uint32_t max_receives() const { return max_receives_; }
  std::uint32_t max_segments() const { return max_segments_; }
  std::uint32_t limit() const;

 private:
  struct Entry {
    std::uint64_t wr_id;
    std::uint32_t segment_count;
  };

  const std::uint32_t max_receives_;
  const std::uint32_t max_segments_;
  mutable std::mutex mutex_;
  LazyArray<Entry> entries_;
  LazyArray<ibv_sge> segments_;
  std::uint64_t posted_ = 0;
  std::uint64_t taken_ = 0;
  std::uint32_t limit_ = 0;
  void (*limit_reached_)(void*) = nullptr;
  void* limit_context_ = nullptr;
};

}  // namespace plugfest::roce
