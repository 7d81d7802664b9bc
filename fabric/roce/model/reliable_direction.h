// The model of reliable connections.
#pragma once

#include "fabric/roce/model/direction.h"

namespace plugfest::roce::model {

/// The model applies each request when it is posted: a responder executes requests in order, and no other direction
/// uses the same memory. A later request may overtake a READ, so requests that overwrite memory being read get a fence.
class ReliableDirection final : public Direction {
 public:
  ReliableDirection(Endpoint& sender, Endpoint& receiver, unsigned queue_pair, const Setting& setting,
                    std::uint64_t seed);

  bool done() const override { return left_ == 0 && !awaits_completions() && messages_.empty(); }

 private:
  // A SEND, or a WRITE with immediate data, that has not completed at the receiver.
  struct Message {
    bool is_send = false;
    bool has_immediate = false;
    std::uint32_t immediate = 0;
    std::uint32_t length = 0;
    std::vector<std::uint8_t> bytes;
    Range written_before = {};  ///< last WRITE before; must be visible when the message completes
    std::uint64_t writes_before = 0;
  };

  void prepare() override;
  void apply() override;
  std::uint32_t draw_receive_length() override;
  bool wants_receive(std::size_t open) const override { return receiver_.shared || open < messages_.size() + 2; }
  void on_message(const ibv_wc& completion, const std::vector<Range>& pieces) override;

  void prepare_write();
  void prepare_read();
  void prepare_atomic();

  Range target_;  ///< at the receiver; for WRITE and READ
  Range words_;   ///< at the receiver; for atomics
  std::uint64_t writes_ = 0;
  Range last_written_ = {};
  std::vector<Range> unfenced_reads_;  ///< at the receiver; READs since the last fence
  std::deque<Message> messages_;
};

}  // namespace plugfest::roce::model
