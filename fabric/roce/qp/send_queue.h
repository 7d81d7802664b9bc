// Posted sends: a ring of requests with their segments and inline bytes.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "fabric/roce/qp/lazy_array.h"
#include "fabric/roce/wire/psn.h"

namespace plugfest::roce {

/// A work request as the requester keeps it until it is acknowledged. One that concerns this NIC alone takes no PSN; a
/// memory window's binding is kept in fields that it would not use.
struct SendRequest {
  std::uint64_t wr_id;
  std::uint64_t remote_address;  ///< or where a window begins
  std::uint64_t swap_or_add;     ///< or the lkey of a window's region
  std::uint64_t compare;         ///< or the length of a window
  std::uint64_t cost_before;     ///< what all requests before it weigh in the window
  std::uint32_t remote_key;      ///< or the one to invalidate, or that a window gets
  std::uint32_t immediate;       ///< as in ibv_send_wr; or what a window allows
  std::uint32_t length;          ///< bytes
  std::uint32_t segment_count;
  std::uint32_t packets;       ///< PSNs that it takes
  std::uint32_t read_packets;  ///< that one request on the wire asks for; 0: not decided yet
  Psn first;
  ibv_wr_opcode opcode;
  bool signaled;
  bool solicited;
  bool fenced;
  bool is_inline;
  bool done;  ///< and is local: it waits for those before it to be done

  Psn end() const { return first + packets; }
  bool is_read() const { return opcode == IBV_WR_RDMA_READ; }
  bool is_atomic() const { return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD; }
  /// Done here, without a packet.
  bool is_local() const { return opcode == IBV_WR_BIND_MW || opcode == IBV_WR_LOCAL_INV; }
  /// Completed by what the peer sends back, not by an acknowledgement alone.
  bool awaits_response() const { return is_read() || is_atomic(); }
};

/// Requests are named by the running number of their posting. Not thread-safe; guarded by the NIC's lock.
class SendQueue {
 public:
  /// Errors: std::bad_alloc.
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

  /// Copies a request, inline bytes included, into the place end(); the caller fills in PSN and packets and then calls
  /// commit(). Returns 0, or ENOMEM if the queue is full, EINVAL for too many segments, too long a message, too many
  /// inline bytes, or a binding that names no window or another window's key.
  int prepare(const ibv_send_wr& request, bool signal_all);
  void commit() { ++end_; }
  void pop() { ++oldest_; }

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

/// Largest message in bytes.
inline constexpr std::uint32_t kLargestMessageBytes = 1u << 30;

}  // namespace plugfest::roce
