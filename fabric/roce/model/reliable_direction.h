// What must become of the requests of a reliable connection.
#pragma once

#include "fabric/roce/model/direction.h"

namespace plugfest::roce::model {

/// Requests are carried out in the order of posting, and no other direction touches the memory that they are about, so
/// the model carries each out as soon as it is posted. Later requests may overtake reads in the peer's memory; where
/// that would show, a fence is drawn.
class ReliableDirection final : public Direction {
 public:
  ReliableDirection(Endpoint& here, Endpoint& there, unsigned queue_pair, const Setting& setting, std::uint64_t seed);

  bool done() const override { return left_ == 0 && !awaits_completions() && messages_.empty(); }

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

  void prepare() override;
  void carry_out() override;
  std::uint32_t draw_receive_length() override;
  bool wants_receive(std::size_t open) const override { return there_.shared || open < messages_.size() + 2; }
  void on_message(const ibv_wc& completion, const std::vector<Range>& pieces) override;

  void prepare_write();
  void prepare_read();
  void prepare_atomic();

  Range target_;  ///< there; written and read
  Range words_;   ///< there; for atomics
  std::uint64_t writes_ = 0;
  Range last_written_ = {};
  std::vector<Range> being_read_;  ///< there, by reads that no fence has ended
  std::deque<Message> messages_;
};

}  // namespace plugfest::roce::model
