// The ibv_wr_* calls: work requests put together call by call, then posted as one list.
#pragma once

#include <infiniband/verbs.h>
#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plugfest::roce::verbs {

/// Operations (IBV_QP_EX_WITH_…) that the ibv_wr_* calls offer on a queue pair of this type.
std::uint64_t extended_send_operations(ibv_qp_type type);

/// What a program has said between ibv_wr_start and ibv_wr_complete on one queue pair. start() takes a lock that
/// complete() and abort() give back, so several threads may use one queue pair; everything else belongs between them.
///
/// Memory is kept from one posting to the next, so that a steady program allocates nothing.
class ExtendedPosting {
 public:
  ExtendedPosting() { pthread_mutex_init(&mutex_, nullptr); }
  ~ExtendedPosting() { pthread_mutex_destroy(&mutex_); }
  ExtendedPosting(const ExtendedPosting&) = delete;
  ExtendedPosting& operator=(const ExtendedPosting&) = delete;

  void start();

  /// Begins the next work request, with the id and the flags that the program has put into `queue_pair`.
  ibv_send_wr& add(const ibv_qp_ex& queue_pair, ibv_wr_opcode opcode);

  /// The work request that the setters complete. If there is none, one that is never posted, and complete() fails.
  ibv_send_wr& current();

  void set_segments(const ibv_sge* segments, std::size_t count);

  /// Copies the bytes: the program may reuse its buffers at once.
  void set_inline(const ibv_data_buf* buffers, std::size_t count);

  /// Posts all of them, or none if one could not be put together. Returns 0 or an errno value.
  int complete(ibv_qp& queue_pair);

  void abort();

  void note_error(int error) {
    if (error_ == 0) error_ = error;
  }

 private:
  struct Request {
    ibv_send_wr wr;
    std::size_t first_segment;
    bool is_inline;  // addresses of its segments are offsets in inline_bytes_
  };

  void clear();

  pthread_mutex_t mutex_;
  std::vector<Request> requests_;
  std::vector<ibv_sge> segments_;
  std::vector<std::uint8_t> inline_bytes_;
  ibv_send_wr nowhere_ = {};
  int error_ = 0;
};

/// Sets the function pointers of `queue_pair`, whose ExtendedPosting extended_posting_of() finds.
void install_extended_posting(ibv_qp_ex& queue_pair);

/// Defined beside the queue pair's type.
ExtendedPosting& extended_posting_of(ibv_qp_ex& queue_pair);

}  // namespace plugfest::roce::verbs
