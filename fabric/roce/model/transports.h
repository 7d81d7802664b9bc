// The model's expectations of reliable and unreliable transports.
#pragma once

#include <memory>

#include "fabric/roce/model/direction.h"
#include "fabric/roce/qp/connection.h"

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
    Range written_before = {};  ///< the last WRITE before the message; must be visible when the message completes
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

  Range target_;  ///< memory at the receiver for WRITE and READ
  Range words_;   ///< memory at the receiver for atomics
  std::uint64_t writes_ = 0;
  Range last_written_ = {};
  std::vector<Range> unfenced_reads_;  ///< the receiver's memory of READs since the last fence
  std::deque<Message> messages_;
};

/// A message arrives completely and unmodified, or not at all. Messages arrive in order and at most once, unless faults
/// duplicate or reorder packets. A WRITE that is lost may have written the memory of some of its packets, and no other
/// memory; so each WRITE has its own memory.
///
/// After the last request, the sender posts empty messages until one arrives; earlier messages have then arrived or are
/// lost.
class UnreliableDirection final : public Direction {
 public:
  /// `in_order`: whether no fault duplicates or reorders packets.
  UnreliableDirection(Endpoint& sender, Endpoint& receiver, unsigned queue_pair, const Setting& setting, bool in_order,
                      std::uint64_t seed);

  bool done() const override { return left_ == 0 && !awaits_completions() && end_arrived_; }
  void check_remaining() override;

  /// Number of messages that the receiver completes or counts as dropped if no packet is lost, and number of messages
  /// completed.
  std::uint64_t deliverable() const { return deliverable_; }
  std::uint64_t arrived() const { return arrived_; }
  /// Makes check_remaining() require that all WRITEs have arrived.
  void assume_lossless() { lossless_ = true; }

 private:
  struct Message {
    bool is_send = false;
    bool has_immediate = false;
    std::uint32_t immediate = 0;
    std::vector<std::uint8_t> bytes;
    std::size_t write = 0;  ///< index into writes_; unused for a SEND
  };
  struct Write {
    Range range;
    std::vector<std::uint8_t> bytes;
    bool has_immediate = false;
    bool completed = false;  ///< the receiver has reported its immediate data
  };

  void prepare() override;
  void apply() override;
  std::uint32_t draw_receive_length() override;
  bool wants_receive(std::size_t /*open*/) const override { return !end_arrived_; }
  void on_message(const ibv_wc& completion, const std::vector<Range>& pieces) override;

  void prepare_datagram();
  bool matches(const Message& message, const ibv_wc& completion, const std::vector<std::uint8_t>& got) const;
  void expect_grh(std::span<const std::uint8_t> grh, std::uint32_t length) const;

  const bool is_datagram_;
  const bool in_order_;
  const std::unique_ptr<AddressHandle> recipient_;
  bool invalid_target_ = false;  ///< `next_` has a wrong R_Key, Q_Key or queue pair number
  std::vector<Message> messages_;
  std::vector<Write> writes_;
  std::size_t first_possible_ = 0;  ///< index into messages_; used if in_order_
  bool end_arrived_ = false;
  bool lossless_ = false;
  std::uint64_t deliverable_ = 0;
  std::uint64_t arrived_ = 0;
};

}  // namespace plugfest::roce::model
