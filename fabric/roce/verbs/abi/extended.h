// The extended API: posting (ibv_wr_*) and polling (ibv_start_poll) call by call.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fabric/roce/qp/completion_queue.h"

namespace plugfest::roce::verbs {

/// The fields of wc_flags (IBV_WC_EX_WITH_…) that need the time of a completion.
inline constexpr std::uint64_t kTimestampFields =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// The wc_flags that a queue may be created with.
inline constexpr std::uint64_t kSupportedCompletionFields = IBV_WC_STANDARD_FLAGS | kTimestampFields;

/// Sets the function pointers of a completion queue. They use current_completion_of(queue). `fields`: the wc_flags of
/// the queue. As with hardware, a timestamp that was not requested has no reader. Unsupported fields (VLAN, flow tag,
/// tag matching) have none either; creating a queue with them fails.
void install_extended_polling(ibv_cq_ex& queue, std::uint64_t fields);

/// The completion that the last ibv_start_poll or ibv_next_poll returned. Defined in completion.cc.
const TimedCompletion& current_completion_of(const ibv_cq_ex& queue);

/// Exclude other threads from ibv_start_poll to ibv_end_poll, unless the program has promised that only one thread
/// polls. lock_polling() returns false in a child process after fork. Defined in completion.cc.
bool lock_polling(ibv_cq_ex& queue);
void unlock_polling(ibv_cq_ex& queue);

/// Takes the next completion as the current one. Returns 1, 0 if there is none, or -1. Defined in completion.cc.
int take_completion(ibv_cq_ex& queue) noexcept;

/// The operations (IBV_QP_EX_WITH_…) that ibv_wr_* supports for a queue pair type.
std::uint64_t extended_send_operations(ibv_qp_type type);

/// The work requests between ibv_wr_start and ibv_wr_complete on one queue pair. start() takes a lock that complete()
/// and abort() release, so several threads may post to one queue pair. All other calls require the lock.
///
/// Keeps its memory between postings: posting does not allocate in the steady state.
class ExtendedPosting {
 public:
  ExtendedPosting() { pthread_mutex_init(&mutex_, nullptr); }
  ~ExtendedPosting() { pthread_mutex_destroy(&mutex_); }
  ExtendedPosting(const ExtendedPosting&) = delete;
  ExtendedPosting& operator=(const ExtendedPosting&) = delete;

  void start();

  /// Starts the next work request, with wr_id and wr_flags of `queue_pair`.
  ibv_send_wr& add(const ibv_qp_ex& queue_pair, ibv_wr_opcode opcode);

  /// The work request that the setters modify. Before the first add(): a dummy, and complete() fails.
  ibv_send_wr& current();

  void set_segments(const ibv_sge* segments, std::size_t count);

  /// Copies the data; the program may reuse its buffers immediately.
  void set_inline(const ibv_data_buf* buffers, std::size_t count);

  /// Posts all work requests, or none if one is invalid, if there is no room, or if record_error() was called. Returns
  /// 0 or an errno value.
  int complete(ibv_qp& queue_pair);

  void abort();

  void record_error(int error) {
    if (error_ == 0) error_ = error;
  }

 private:
  struct Request {
    ibv_send_wr wr;
    std::size_t first_segment;
    bool is_inline;  ///< segment addresses are offsets into inline_bytes_
  };

  void clear();

  pthread_mutex_t mutex_;
  std::vector<Request> requests_;
  std::vector<ibv_sge> segments_;
  std::vector<std::uint8_t> inline_bytes_;
  ibv_send_wr discarded_ = {};
  int error_ = 0;
};

/// Sets the function pointers of `queue_pair`. They use extended_posting_of(queue_pair).
void install_extended_posting(ibv_qp_ex& queue_pair);

/// Defined in queue_pair.cc.
ExtendedPosting& extended_posting_of(ibv_qp_ex& queue_pair);

/// Posts a list of work requests, or none of them. Returns 0 or an errno value. Defined in queue_pair.cc.
int post_all(ibv_qp& queue_pair, ibv_send_wr& list) noexcept;

}  // namespace plugfest::roce::verbs
