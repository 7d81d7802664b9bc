// Requester and responder of an unreliable connection (UC).
#pragma once

#include <cstdint>

#include "fabric/roce/qp/transports.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class UnreliableRequester : public Requester {
 public:
  using Requester::Requester;

  void start(const Settings& settings) override;
  void reset() override;
  int post(const ibv_send_wr& request) override;
  void withdraw(std::uint64_t posted) override;
  void transmit(Nanoseconds now) override;
  Nanoseconds deadline() const override { return resume_at_; }
  void on_timer(Nanoseconds now) override { transmit(now); }
  void flush() override;
  Psn next_psn() const override { return post_psn_; }

 protected:
  virtual bool supports(ibv_wr_opcode opcode) const;

  /// Sets the header fields of a request's destination and returns its path. Packets of one batch have the same path
  /// object. Null if the kernel has no room; then the batch is discarded.
  virtual const Path* address(std::uint64_t number, const SendRequest& request, Headers& headers);

 private:
  bool drained() const override { return next_.packet == 0 && queue_.oldest() == next_.request; }
  bool send_message(std::uint64_t number, Nanoseconds now);
  void fail(std::uint64_t number, ibv_wc_status status);
  void restart_batch() { next_ = sent_; }

  Psn post_psn_;                    ///< PSN of the next request posted
  PacketPosition next_;             ///< next packet to build
  PacketPosition sent_;             ///< all packets before it were given to the kernel
  Nanoseconds resume_at_ = kNever;  ///< when the rate limit allows the next packet
};

/// Drops a message if one of its packets is missing. Not thread-safe; guarded by the NIC's lock.
class UnreliableResponder final : public Responder {
 public:
  using Responder::Responder;

  void start(const Settings& settings) override;
  void receive(const Packet& packet, const Arrival& arrival) override;

 private:
  bool follows(const Packet& packet, const OperationTraits& traits);
  bool place_send(const Packet& packet);
  bool place_write(const Packet& packet, const OperationTraits& traits);
  void complete(const Packet& packet, const OperationTraits& traits);

  IncomingMessage message_;  ///< kNone after a loss: the rest of the message is dropped
};

}  // namespace plugfest::roce
