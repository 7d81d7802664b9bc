// Posted work requests: receive queues and send queues.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "fabric/roce/memory/memory.h"
#include "fabric/roce/memory/scatter_gather_list.h"
#include "fabric/roce/wire/wire.h"
#include "fabric/system/number.h"

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
  ReceiveQueue(std::uint32_t max_receives, std::uint32_t max_segments);

  /// Appends a list of receives. Returns 0, or ENOMEM if the ring is full, EINVAL if a request has too many segments;
  /// then `*bad` is the first request that was not posted.
  int post(ibv_recv_wr* list, ibv_recv_wr** bad);

  /// Takes the oldest receive, or returns false.
  bool take(PostedReceive& receive);

  /// Calls `limit_reached(context)` once, outside this queue's lock, when a receive is taken and fewer than `limit` are
  /// left (shared receive queues; IBV_SRQ_LIMIT). 0 disarms.
  void set_limit(std::uint32_t limit, void (*limit_reached)(void*), void* context);

  std::uint32_t max_receives() const { return max_receives_; }
  std::uint32_t max_segments() const { return max_segments_; }
  std::uint32_t limit() const { return limit_; }

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
  std::atomic<std::uint32_t> limit_ = 0;  ///< changes under the lock
  void (*limit_reached_)(void*) = nullptr;
  void* limit_context_ = nullptr;
};

class CompletionQueue;

/// A shared receive queue of an XRC domain, which requests name by number. Its completion queue gets the completions of
/// its receives, and its protection domain says which memory those requests may access.
struct ExtendedReceives {
  ReceiveQueue& receives;
  CompletionQueue& completions;
  const ProtectionDomain& domain;
  const void* extended_domain;  ///< the identity of the XRC domain
};

/// The XRC shared receive queues of a NIC. Guarded by the NIC's lock.
class ExtendedReceivesTable {
 public:
  /// Returns the number of the queue.
  std::uint32_t add(const ExtendedReceives& queue) {
    while (queues_.contains(++last_ & kMask) || (last_ & kMask) == 0) continue;
    queues_.emplace(last_ & kMask, queue);
    return last_ & kMask;
  }
  void remove(std::uint32_t number) { queues_.erase(number); }
  /// The queue with a number in an XRC domain, or null.
  const ExtendedReceives* find(std::uint32_t number, const void* extended_domain) const {
    const auto found = queues_.find(number);
    return found == queues_.end() || found->second.extended_domain != extended_domain ? nullptr : &found->second;
  }

 private:
  static constexpr std::uint32_t kMask = 0xffffff;
  std::unordered_map<std::uint32_t, ExtendedReceives> queues_;
  std::uint32_t last_ = random_number();
};

/// A copy of an ibv_send_wr, kept until the request completes. Local requests use no PSN.
struct SendRequest {
  /// The peer's memory and the operands of an atomic.
  struct Remote {
    std::uint64_t address;
    std::uint64_t swap_or_add;
    std::uint64_t compare;
    std::uint32_t key;  ///< rkey, or the key to invalidate
  };

  std::uint64_t wr_id;
  union {
    Remote remote;
    WindowBinding binding;  ///< for IBV_WR_BIND_MW
  };
  std::uint64_t cost_before;   ///< cost of all earlier requests in the congestion window
  std::uint32_t shared_queue;  ///< XRC: number of the peer's shared receive queue
  std::uint32_t immediate;     ///< as in ibv_send_wr
  std::uint32_t length;        ///< bytes
  std::uint32_t segment_count;
  std::uint32_t packets;       ///< number of PSNs
  std::uint32_t read_packets;  ///< packets per READ request on the wire; 0: not decided yet
  Psn first;
  ibv_wr_opcode opcode;
  bool signaled;
  bool solicited;
  bool fenced;
  bool is_inline;
  bool done;  ///< a local request was executed and waits for earlier ones to complete

  Psn end() const { return first + packets; }
  bool is_read() const { return opcode == IBV_WR_RDMA_READ; }
  bool is_atomic() const { return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD; }
  /// Whether this NIC executes the request without a packet.
  bool is_local() const { return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV; }
  /// Whether a response of the peer completes the request, not an acknowledgement.
  bool awaits_response() const { return is_read() || is_atomic(); }
};

/// A ring of requests, which are numbered in the order of posting. Not thread-safe; guarded by the NIC's lock.
class SendQueue {
 public:
  SendQueue(std::uint32_t max_requests, std::uint32_t max_segments, std::uint32_t max_inline_bytes);

  std::uint64_t oldest() const { return oldest_; }  ///< not yet completed
  std::uint64_t end() const { return end_; }        ///< next to be posted
  bool empty() const { return oldest_ == end_; }
  bool full() const { return end_ - oldest_ == max_requests_; }

  SendRequest& operator[](std::uint64_t request) { return requests_[request % max_requests_]; }
  const SendRequest& operator[](std::uint64_t request) const { return requests_[request % max_requests_]; }
  const ibv_sge* segments_of(std::uint64_t request) const {
    return segments_.get() + (request % max_requests_) * max_segments_;
  }
  std::byte* inline_bytes_of(std::uint64_t request) const {
    return inline_bytes_.get() + (request % max_requests_) * max_inline_bytes_;
  }

  /// Copies a request with its inline bytes to position end(). The caller sets PSN and packets and then calls commit().
  /// Returns 0, or ENOMEM if the queue is full, EINVAL for too many segments, too long a message, too many inline
  /// bytes, or a binding that names no window or another window's key.
  int prepare(const ibv_send_wr& request, bool signal_all);
  void commit() { ++end_; }
  void pop() { ++oldest_; }
  /// Removes the requests from number `request` on, which must be waiting.
  void withdraw(std::uint64_t request) { end_ = request; }

 private:
  const std::uint32_t max_requests_;
  const std::uint32_t max_segments_;
  const std::uint32_t max_inline_bytes_;
  LazyArray<SendRequest> requests_;
  LazyArray<ibv_sge> segments_;
  LazyArray<std::byte> inline_bytes_;
  std::uint64_t oldest_ = 0;
  std::uint64_t end_ = 0;
};

inline constexpr std::uint32_t kMaxMessageBytes = 1u << 30;

}  // namespace plugfest::roce
