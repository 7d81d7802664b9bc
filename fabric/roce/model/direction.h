// What one queue pair sends its peer, and what the model says must become of it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "fabric/roce/model/endpoint.h"

namespace plugfest::roce::model {

/// Random requests from one queue pair to its peer: what all transports have in common. What differs from the model is
/// a failure of the GoogleTest test that is running.
class Direction {
 public:
  /// `seed` alone decides which requests are posted, whatever the order of events.
  Direction(Endpoint& here, Endpoint& there, unsigned queue_pair, const Setting& setting, std::uint64_t seed);
  virtual ~Direction() = default;
  Direction(const Direction&) = delete;
  Direction& operator=(const Direction&) = delete;

  /// Posts one more request, if any is left and the queue has room.
  void post();

  /// Posts a receive for what `here` sends, if there may be a need of one. With a shared receive queue, one for all.
  void post_receive();

  /// Everything was posted, and what must come came.
  virtual bool done() const = 0;

  void on_send_completion(const ibv_wc& completion);
  /// At `there`.
  void on_receive_completion(const ibv_wc& completion);

  /// Checks what is left to be checked, when neither NIC touches memory any more.
  virtual void settle() {}

 protected:
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

  /// Fills `next_` in; it is empty but for wr_id and, maybe, IBV_SEND_SIGNALED.
  virtual void prepare() = 0;
  /// Carries out in the model what was posted: `next_`.
  virtual void carry_out() = 0;
  virtual std::uint32_t draw_receive_length() = 0;
  /// Whether one more receive is of use, besides those that are open.
  virtual bool wants_receive(std::size_t open) const = 0;
  /// A message has come into the receive whose memory is `pieces`.
  virtual void on_message(const ibv_wc& completion, const std::vector<Range>& pieces) = 0;

  /// Mostly around multiples of the path MTU, where packets begin and end.
  std::uint32_t draw_length();
  /// Draws what a SEND or WRITE takes along: its length, memory, flags, immediate data.
  void prepare_data();
  /// Notes that a signaled request will complete.
  void expect_completion();
  bool awaits_completions() const { return !expected_sends_.empty(); }

  Endpoint& here_;
  Endpoint& there_;
  QueuePair& queue_pair_;
  QueuePair& peer_;
  const Setting& setting_;
  Random random_;
  Random receive_random_;

  Range source_;   ///< here; never changes
  unsigned left_;  ///< requests to post
  bool is_prepared_ = false;
  Prepared next_;
  std::deque<std::uint64_t> posted_receives_;  ///< wr_ids, unless receives are shared

 private:
  struct ExpectedSend {
    ibv_wc completion;
    std::vector<Range> landing;
  };

  std::uint64_t next_id_ = kFirstSendId;
  std::deque<ExpectedSend> expected_sends_;
  bool flushed_ = false;  ///< receives came back unused
};

bool has_immediate(ibv_wr_opcode opcode);
bool is_write(ibv_wr_opcode opcode);
bool is_send(ibv_wr_opcode opcode);
bool is_atomic(ibv_wr_opcode opcode);

/// A piece of `length` bytes somewhere in `whole`.
Range draw_part(Random& random, const Range& whole, std::uint32_t length);

/// Spreads bytes over pieces of what must be, as scatter lists do.
void scatter(Endpoint& end, const std::vector<Range>& pieces, std::span<const std::uint8_t> bytes);

bool as_expected(Endpoint& end, const Range& range);

}  // namespace plugfest::roce::model
