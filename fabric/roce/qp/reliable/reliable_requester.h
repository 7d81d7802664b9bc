// The sending half of a reliable queue pair: cuts requests into packets, keeps them until they are acknowledged,
// repeats what was lost.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>

#include "fabric/roce/qp/reliable/congestion_window.h"
#include "fabric/roce/qp/requester.h"
#include "fabric/roce/wire/wire.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Not thread-safe; guarded by the NIC's lock.
class ReliableRequester final : public Requester {
 public:
  using Requester::Requester;

  void start(const Settings& settings) override;
  void reset() override;
  int post(const ibv_send_wr& request) override;

  /// Sends what window, reads in flight and timers allow.
  void transmit(Nanoseconds now) override;
  bool may_defer() const override;

  void receive(const Packet& packet, Nanoseconds now) override;
  void on_congestion() override;
  Placement placement_for(const Headers& headers) const override;
  Placement next_placement() const override;
  Nanoseconds deadline() const override;
  void on_timer(Nanoseconds now) override;
  void flush() override;
  Psn next_psn() const override { return post_psn_; }

 private:
  // The place of the next packet to send, or of the oldest one not acknowledged.
  struct Place {
    std::uint64_t request = 0;
    std::uint32_t packet = 0;  ///< within the request
  };

  bool send_packets(std::uint64_t number, SendRequest& request);
  bool send_read(SendRequest& request);
  bool send_atomic(SendRequest& request);
  bool execute_next_locally(SendRequest& request, Nanoseconds now);
  /// As find_memory(); and the queue pair is failing when that fails.
  bool resolve(std::uint64_t number, const SendRequest& request, ScatterGatherList& pieces);
  bool add_packet(const Headers& headers, const iovec* payload, std::size_t pieces, std::size_t bytes);
  /// `psn`: of the packet at `place`.
  void sent_up_to(Place place, Psn psn);
  /// What all packets of a SEND or WRITE have alike.
  Headers headers_for(const SendRequest& request) const;
  std::uint64_t cost_at(Place place) const;
  std::uint64_t cost_in_flight() const { return cost_at(next_) - cost_at(oldest_); }
  bool window_is_full() const { return !allow_one_ && cost_in_flight() >= window_.bytes(); }
  std::uint32_t packets_of(const SendRequest& request) const;

  void acknowledge_before(Psn psn, Nanoseconds now);
  void oldest_is(Place place, Nanoseconds now);
  void take_response(const Packet& packet, Nanoseconds now);
  void take_nak(const Packet& packet, Nanoseconds now);
  void go_back(Psn psn);
  void note_loss();
  void probe(Nanoseconds now);
  bool drained() const override { return !outstanding() && next_.packet == 0; }
  void fail_oldest(ibv_wc_status status);
  Psn psn_at(Place place) const;
  bool outstanding() const { return oldest_psn_ != psn_at(next_); }
  void restart_timers(Nanoseconds now);

  Settings settings_;
  bool started_ = false;
  Psn post_psn_;  ///< for the next request posted
  std::uint64_t post_cost_ = 0;
  Place oldest_;               ///< not acknowledged
  Place next_;                 ///< to send
  Psn oldest_psn_;             ///< of oldest_, also when its request is gone
  Psn sent_end_;               ///< after the last one ever sent
  Psn batch_start_;            ///< first packet of the batch being put together
  std::uint64_t unasked_ = 0;  ///< sent since an acknowledgement was last asked for
  bool allow_one_ = false;     ///< the next packet may go whatever the window says
  std::deque<Psn> reads_;      ///< ends of READ and atomic requests that are not answered in full
  Window window_;
  Psn recovery_end_;  ///< a loss before it has been counted
  Psn gap_;           ///< a missing response that was asked for again
  bool gap_known_ = false;
  Psn asked_again_;  ///< by a NAK, and repeated
  Nanoseconds asked_again_until_ = 0;
  bool failing_ = false;  ///< the request at next_ cannot be sent: it fails once it is the oldest
  ibv_wc_status failure_ = IBV_WC_SUCCESS;

  unsigned retries_left_ = 0;
  unsigned rnr_retries_left_ = 0;
  Nanoseconds rnr_until_ = 0;  ///< 0: not waiting
  Nanoseconds timeout_at_ = kNever;
  Nanoseconds probe_at_ = kNever;
  Nanoseconds probe_after_ = 0;  ///< doubles with every probe in vain
};

}  // namespace plugfest::roce
