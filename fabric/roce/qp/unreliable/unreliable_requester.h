// The sending half of an unreliable connection (UC): messages leave at the port's speed, once, and are done.
#pragma once

#include <cstdint>

#include "fabric/roce/qp/requester.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class UnreliableRequester : public Requester {
 public:
  using Requester::Requester;

  void start(const Settings& settings) override;
  void reset() override;
  int post(const ibv_send_wr& request) override;
  void transmit(Nanoseconds now) override;
  Nanoseconds deadline() const override { return resume_at_; }
  void on_timer(Nanoseconds now) override { transmit(now); }
  void flush() override;
  Psn next_psn() const override { return post_psn_; }

 protected:
  virtual bool supports(ibv_wr_opcode opcode) const;

  /// Adds to the headers what says where a request goes, and returns its path: the same object for packets that may
  /// leave together. Null if the kernel has no room now; then the batch is discarded.
  virtual const Path* address(std::uint64_t number, const SendRequest& request, Headers& headers);

 private:
  // The next packet to send, or to hand to the kernel.
  struct Place {
    std::uint64_t request = 0;
    std::uint32_t packet = 0;  ///< within the request
  };

  bool drained() const override { return next_.packet == 0 && queue_.oldest() == next_.request; }
  bool send_message(std::uint64_t number, Nanoseconds now);
  void fail(std::uint64_t number, ibv_wc_status status);
  void begin_again() { next_ = handed_over_; }

  bool started_ = false;
  Psn post_psn_;                    ///< for the next request posted
  Place next_;                      ///< to be put together
  Place handed_over_;               ///< what is before it is the kernel's
  Nanoseconds resume_at_ = kNever;  ///< when the port is free again
};

}  // namespace plugfest::roce
