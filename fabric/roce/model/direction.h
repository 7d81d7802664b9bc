// What one queue pair asks of its peer, and what the model says must become of it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "fabric/roce/model/endpoint.h"

namespace plugfest::roce::model {

/// Random requests from one queue pair to its peer. Requests are carried out in the order of posting, and no other
/// direction touches the memory that they are about, so the model carries each out as soon as it is posted. Later
/// requests may overtake reads in the peer's memory; where that would show, a fence is drawn.
///
/// What differs is a failure of the GoogleTest test that is running.
class Direction {
 public:
  /// `seed` alone decides which requests are posted, whatever the order of events.
  Direction(Endpoint& here, Endpoint& there, unsigned queue_pair, const Setting& setting, std::uint64_t seed);

  /// Posts one more request, if any is left and the queue has room.
  void post();

  /// Posts a receive for what `here` sends, if there may be a need of one. With a shared receive queue, one for all.
  void post_receive();

  /// Everything was posted, and every completion came.
  bool done() const { return left_ == 0 && expected_sends_.empty() && messages_.empty(); }

  void on_send_completion(const ibv_wc& completion);
  /// At `there`.
  void on_receive_completion(const ibv_wc& completion);

 private:
  // A SEND or a WRITE with immediate data, on its way.
  struct Message {
    bool is_send = false;
    bool has_immediate = false;
    std::uint32_t immediate = 0;
    std::uint32_t length = 0;
    std::vector<std::uint8_t> bytes;
    Range written_before = {};  ///< must be in memory when the message has arrived
    std::uint64_t writes_before = 0;
  };
  // The request that is posted next.
  struct Prepared {
    ibv_send_wr request = {};
    std::uint32_t length = 0;
    std::vector<ibv_sge> segments;
    std::vector<std::uint8_t> bytes;  ///< that go to the peer
    std::vector<std::uint8_t> given;  ///< memory of inline data; reused after posting
    std::vector<Range> landing;       ///< of what comes back
    Range remote = {};
  };
  struct ExpectedSend {
    ibv_wc completion;
    std::vector<Range> landing;
  };

  std::uint32_t draw_length();
  void prepare();
  void prepare_outgoing();
  void prepare_incoming();
  void prepare_atomic();
  void carry_out();

  Endpoint& here_;
  Endpoint& there_;
  QueuePair& queue_pair_;
  QueuePair& peer_;
  const Setting& setting_;
  Random random_;
  Random receive_random_;

  Range source_;  ///< here; never changes
  Range target_;  ///< there; written and read
  Range words_;   ///< there; for atomics
  unsigned left_;
  bool is_prepared_ = false;
  Prepared next_;
  std::uint64_t next_id_ = 0;
  std::uint64_t writes_ = 0;
  Range last_written_ = {};
  std::vector<Range> being_read_;  ///< there, by reads that no fence has ended

  std::deque<ExpectedSend> expected_sends_;
  std::deque<Message> messages_;
  std::deque<std::uint64_t> posted_receives_;  ///< wr_ids, unless receives are shared
};

}  // namespace plugfest::roce::model
