// The requester of a reliable queue pair: splits requests into packets, keeps requests until they are acknowledged, and
// repeats lost packets.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <optional>

#include "fabric/roce/qp/loss_recovery.h"
#include "fabric/roce/qp/transports.h"
#include "fabric/roce/wire/wire.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Positions and PSNs stay in one class, because each acknowledgement and each repetition updates most of them
/// together. The rest of the state is in CongestionWindow, RetransmissionTimer and LossRecovery.
///
/// Not thread-safe; guarded by the NIC's lock.
class ReliableRequester final : public Requester {
 public:
  using Requester::Requester;

  void start(const Settings& settings) override;
  void set_limits(const Settings& settings, Nanoseconds now) override;
  void reset() override;
  int post(const ibv_send_wr& request) override;
  void withdraw(std::uint64_t posted) override;

  /// Sends the packets that the congestion window, the limit of READs in flight and the timers allow.
  void transmit(Nanoseconds now) override;
  bool may_defer() const override;

  void receive(const Packet& packet, Nanoseconds now) override;
  void on_congestion() override;
  Placement placement_for(const Headers& headers) const override;
  Placement next_placement() const override;
  Nanoseconds deadline() const override { return timer_.deadline(); }
  void on_timer(Nanoseconds now) override;
  void flush() override;
  Psn next_psn() const override { return post_psn_; }

 private:
  bool send_packets(std::uint64_t number, SendRequest& request);
  /// Whether one more READ or atomic may be in flight. Sets failure_ if none may ever be.
  bool may_read();
  bool send_read(SendRequest& request);
  bool send_atomic(SendRequest& request);
  bool execute_next_locally(SendRequest& request, Nanoseconds now);
  /// Calls find_memory(). If that fails, calls on_memory_gone().
  bool resolve(std::uint64_t number, const SendRequest& request, ScatterGatherList& pieces);
  /// Sets failure_ because the memory of the packet at next_ cannot be read, if the packet is sent for the first time.
  void on_memory_gone(const SendRequest& request);
  bool add_packet(const Headers& headers, const iovec* payload, std::size_t pieces, std::size_t bytes);
  /// Sends the last batch again when the kernel has room, because it was discarded.
  void repeat_batch();
  /// `psn`: the PSN of the packet at `position`, which is sent next.
  void set_next(PacketPosition position, Psn psn);
  /// The header fields that all packets of a request have in common.
  Headers headers_for(const SendRequest& request) const;
  /// Bytes and packet overhead of all packets before `position`, as the congestion window counts them.
  std::uint64_t cost_at(PacketPosition position) const;
  std::uint64_t cost_in_flight() const { return cost_at(next_) - cost_at(oldest_); }
  bool window_is_full() const { return !ignore_window_once_ && cost_in_flight() >= window_.bytes(); }
  std::uint32_t packets_of(const SendRequest& request) const;

  /// Completes requests and grows the congestion window, because all packets before `psn` are acknowledged.
  void acknowledge_before(Psn psn, Nanoseconds now);
  void set_oldest(PacketPosition position, Nanoseconds now);
  void receive_response(const Packet& packet, Nanoseconds now);
  void receive_nak(const Packet& packet, Nanoseconds now);
  void receive_rnr_nak(Psn psn, std::uint8_t timer_code, Nanoseconds now);
  void receive_sequence_nak(Psn psn, Nanoseconds now);
  /// Continues to send at `psn`.
  void go_back(Psn psn);
  void on_loss();
  /// Whether the host of the peer has reported since the last call that the process of the peer has ended.
  bool peer_is_gone() const;
  /// Sends one packet again, so that its answer tells what was lost.
  void probe(Nanoseconds now);
  bool drained() const override { return !outstanding() && next_.packet == 0; }
  void fail_oldest(ibv_wc_status status);
  Psn psn_at(PacketPosition position) const;
  /// Whether a packet has been sent and not acknowledged. It may be sent again before the acknowledgement.
  bool outstanding() const { return oldest_psn_ != sent_end_; }
  void restart_timers(Nanoseconds now);

  unsigned max_reads_ = 0;  ///< READ and atomic requests in flight
  Psn post_psn_;            ///< PSN of the next request posted
  std::uint64_t post_cost_ = 0;
  PacketPosition oldest_;                  ///< oldest packet not acknowledged
  PacketPosition next_;                    ///< next packet to send
  Psn oldest_psn_;                         ///< PSN of oldest_, even if its request has completed
  Psn sent_end_;                           ///< PSN after the last packet ever sent
  Psn batch_start_;                        ///< first packet of the batch being built
  Psn sent_before_batch_;                  ///< sent_end_ before that batch
  std::uint64_t unacknowledged_cost_ = 0;  ///< cost of packets sent since the last acknowledge request
  bool answered_ = false;                  ///< an acknowledgement or response has come since start()
  bool ignore_window_once_ = false;        ///< the next packet may exceed the congestion window
  std::deque<Psn> reads_;                  ///< end PSNs of READ and atomic requests without a complete response
  CongestionWindow window_;
  RetransmissionTimer timer_;
  LossRecovery recovery_;
  std::optional<ibv_wc_status> failure_;  ///< the request at next_ cannot be sent, and fails once it is the oldest
};

inline Psn ReliableRequester::psn_at(PacketPosition position) const {
  return position.request == queue_.end() ? post_psn_ : queue_[position.request].first + position.packet;
}

inline std::uint64_t ReliableRequester::cost_at(PacketPosition position) const {
  if (position.request == queue_.end()) return post_cost_;
  const SendRequest& request = queue_[position.request];
  return request.cost_before + position.packet * (connection_.path_mtu_bytes + CongestionWindow::kPacketOverheadBytes);
}

inline void ReliableRequester::restart_timers(Nanoseconds now) {
  timer_.restart(now, outstanding());
  connection_.nic.scheduler.call_at(connection_.queue_pair, deadline());
}

}  // namespace plugfest::roce
