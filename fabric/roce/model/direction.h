// The requests from one queue pair to its peer, and their effects according to the model.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "fabric/roce/model/endpoint.h"

namespace plugfest::roce::model {

/// Base class for all transports: posts random requests and checks their completions. Reports differences from the
/// model as failures of the current GoogleTest test.
///
/// Has more than a dozen members, because the derived classes share the state of the posted requests.
class Direction {
 public:
  /// `seed` determines the requests, independent of the order of events.
  Direction(Endpoint& sender, Endpoint& receiver, unsigned queue_pair, const Setting& setting, std::uint64_t seed);
  virtual ~Direction() = default;
  Direction(const Direction&) = delete;
  Direction& operator=(const Direction&) = delete;

  /// Posts one more request, unless all are posted or the send queue is full.
  void post();

  /// Posts a receive at the receiver, to its shared receive queue if it has one, unless wants_receive() is false.
  void post_receive();

  /// True if all requests are posted and all expected completions have arrived.
  virtual bool done() const = 0;

  void on_send_completion(const ibv_wc& completion);
  void on_receive_completion(const ibv_wc& completion);

  /// Final checks, after both NICs have stopped accessing memory.
  virtual void check_remaining() {}

 protected:
  struct Prepared {
    ibv_send_wr request = {};
    std::uint32_t length = 0;
    std::vector<ibv_sge> segments;
    std::vector<std::uint8_t> bytes;        ///< payload to the receiver
    std::vector<std::uint8_t> inline_data;  ///< overwritten after posting
    std::vector<Range> destination;         ///< memory for the response's data
    Range remote = {};
  };

  /// Fills `next_`, which has only wr_id and possibly IBV_SEND_SIGNALED.
  virtual void prepare() = 0;
  /// Applies the posted request `next_` to the model.
  virtual void apply() = 0;
  virtual std::uint32_t draw_receive_length() = 0;
  /// Whether to post another receive in addition to `open` ones.
  virtual bool wants_receive(std::size_t open) const = 0;
  /// Checks a message received into `pieces`.
  virtual void on_message(const ibv_wc& completion, const std::vector<Range>& pieces) = 0;

  /// Prefers lengths near multiples of the path MTU, the packet boundaries.
  std::uint32_t draw_length();
  /// Draws length, payload, flags and immediate data of a SEND or WRITE.
  void prepare_data();
  /// Adds the completion of `next_` to the expected ones, if it is signaled.
  void expect_send_completion();
  bool awaits_completions() const { return !expected_sends_.empty(); }

  Endpoint& sender_;
  Endpoint& receiver_;
  QueuePair& sender_qp_;
  QueuePair& receiver_qp_;
  const Setting& setting_;
  Random random_;
  Random receive_random_;

  Range source_;   ///< memory at the sender; constant content
  unsigned left_;  ///< requests to post
  bool prepared_ = false;
  Prepared next_;
  std::deque<std::uint64_t> posted_receives_;  ///< wr_ids; unused with a shared receive queue

 private:
  struct ExpectedSend {
    ibv_wc completion;
    std::vector<Range> destination;
  };

  std::uint64_t next_id_ = kFirstSendId;
  std::deque<ExpectedSend> expected_sends_;
  bool flushed_ = false;  ///< a receive was flushed
};

bool has_immediate(ibv_wr_opcode opcode);
bool is_write(ibv_wr_opcode opcode);
bool is_send(ibv_wr_opcode opcode);
bool is_atomic(ibv_wr_opcode opcode);

/// A random range of `length` bytes in `whole`.
Range draw_part(Random& random, const Range& whole, std::uint32_t length);

}  // namespace plugfest::roce::model
