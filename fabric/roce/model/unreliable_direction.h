// What may become of the messages of an unreliable connection or of datagrams.
#pragma once

#include <memory>

#include "fabric/roce/model/direction.h"
#include "fabric/roce/qp/destination.h"

namespace plugfest::roce::model {

/// A message arrives as it was sent, in the order of sending, or not at all: never damaged, cut off, or mixed with
/// another. A wire that doubles or overtakes makes messages come twice or out of order; nothing puts that right. A
/// WRITE that does not arrive may have changed some of its packets' memory, and no other. So each WRITE has memory of
/// its own.
///
/// When all is posted, empty messages follow until one arrives: what came before it has arrived then, or is lost.
class UnreliableDirection final : public Direction {
 public:
  /// `wire_keeps_order`: it neither doubles nor overtakes.
  UnreliableDirection(Endpoint& here, Endpoint& there, unsigned queue_pair, const Setting& setting,
                      bool wire_keeps_order, std::uint64_t seed);

  bool done() const override { return left_ == 0 && !awaits_completions() && end_arrived_; }
  void settle() override;

  /// Messages that `there` has to complete or to count as dropped, if the wire loses nothing; and those completed.
  std::uint64_t countable() const { return countable_; }
  std::uint64_t arrived() const { return arrived_; }
  /// Has settle() take every WRITE to have arrived.
  void nothing_was_lost() { nothing_was_lost_ = true; }

 private:
  struct Message {
    bool is_send = false;
    bool has_immediate = false;
    std::uint32_t immediate = 0;
    std::vector<std::uint8_t> bytes;
    Range written = {};
  };
  struct Write {
    Range range;
    std::vector<std::uint8_t> bytes;
    bool has_immediate = false;
  };

  void prepare() override;
  void carry_out() override;
  std::uint32_t draw_receive_length() override;
  bool wants_receive(std::size_t /*open*/) const override { return !end_arrived_; }
  void on_message(const ibv_wc& completion, const std::vector<Range>& pieces) override;

  void prepare_datagram();
  bool may_be(const Message& message, const ibv_wc& completion, const std::vector<std::uint8_t>& got) const;
  void expect_grh(std::span<const std::uint8_t> grh, std::uint32_t length) const;

  const bool is_datagram_;
  const bool wire_keeps_order_;
  const std::unique_ptr<AddressHandle> recipient_;
  bool nowhere_ = false;  ///< `next_` is for a key, a Q_Key or a queue pair that does not exist
  std::vector<Message> messages_;
  std::vector<Write> writes_;
  std::size_t first_possible_ = 0;  ///< of messages_, where the wire keeps order
  bool end_arrived_ = false;
  bool nothing_was_lost_ = false;
  std::uint64_t countable_ = 0;
  std::uint64_t arrived_ = 0;
};

}  // namespace plugfest::roce::model
