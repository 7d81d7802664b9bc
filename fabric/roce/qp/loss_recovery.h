// The reaction of a reliable queue pair to loss and congestion: its congestion window, its timers, and the reports of
// loss. Source of the reaction to congestion marks: Zhu et al., Congestion Control for Large-Scale RDMA Deployments
// (DCQCN), SIGCOMM 2015, for rates; Alizadeh et al., Data Center TCP, SIGCOMM 2010, for windows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fabric/roce/wire/wire.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// A congestion window in bytes: slow start, then additive increase. It shrinks on loss and on congestion marks. Each
/// packet counts with a fixed overhead, for the memory that the receiver's kernel needs to hold it.
class CongestionWindow {
 public:
  static constexpr std::uint64_t kPacketOverheadBytes = 512;
  static constexpr std::uint64_t kMinBytes = 4 * 1024;

  /// Starts with the initial window. `largest_bytes`: upper limit.
  void start(std::uint64_t path_mtu_bytes, std::uint64_t largest_bytes) {
    step_ = path_mtu_bytes + kPacketOverheadBytes;
    largest_ = largest_bytes;
    threshold_ = largest_bytes;
    congestion_ = 1;
    marked_ = was_marked_ = false;
    acknowledged_in_round_ = 0;
    bytes_ = std::min(largest_bytes, kInitialBytes);
  }

  std::uint64_t bytes() const { return bytes_; }

  /// Grows the congestion window after `bytes` were acknowledged.
  void on_acknowledgement(std::uint64_t bytes) {
    if (bytes_ < threshold_)
      bytes_ += bytes;
    else
      bytes_ += std::max<std::uint64_t>(1, kPacketsPerRoundTrip * step_ * bytes / bytes_);
    bytes_ = std::min(bytes_, largest_);
    acknowledged_in_round_ += bytes;
    if (acknowledged_in_round_ >= bytes_) end_round();
  }

  /// Shrinks the congestion window because packets were marked, by half the share of recent round trips with marks;
  /// that share is 1 at first. Call it at most once per round trip.
  void on_congestion() {
    marked_ = was_marked_ = true;
    threshold_ = std::max(static_cast<std::uint64_t>(static_cast<double>(bytes_) * (1 - congestion_ / 2)), min_bytes());
    bytes_ = threshold_;
  }

  /// Shrinks the congestion window by 30 % because a packet was lost and later ones arrived.
  void on_loss() {
    threshold_ = std::max(bytes_ * 7 / 10, min_bytes());
    bytes_ = threshold_;
  }

  /// Shrinks the congestion window to the minimum because no acknowledgement came.
  void on_timeout() {
    threshold_ = std::max(bytes_ / 2, min_bytes());
    bytes_ = min_bytes();
  }

 private:
  static constexpr std::uint64_t kInitialBytes = 128 * 1024;

  // In equilibrium the growth per round trip equals the reduction by losses: 30 % of a window of W packets, W · p times
  // at a probability of loss p. So W = √(4 / 0.3p), 37 packets at 1 % random loss. TCP's one packet and 50 % give 14.
  static constexpr std::uint64_t kPacketsPerRoundTrip = 4;

  static constexpr double kRoundTripWeight = 1.0 / 16;

  void end_round() {
    acknowledged_in_round_ = 0;
    if (was_marked_) congestion_ += kRoundTripWeight * ((marked_ ? 1 : 0) - congestion_);
    marked_ = false;
  }

  std::uint64_t min_bytes() const { return std::max(kMinBytes, 2 * step_); }

  std::uint64_t step_ = 0;  ///< cost of a full packet
  std::uint64_t largest_ = 0;
  std::uint64_t threshold_ = 0;  ///< end of slow start
  std::uint64_t bytes_ = 0;
  std::uint64_t acknowledged_in_round_ = 0;
  double congestion_ = 1;    ///< share of round trips with marks, moving average
  bool marked_ = false;      ///< a packet was marked in this round trip
  bool was_marked_ = false;  ///< a packet was ever marked
};

/// The most by which a busy machine lengthens the time until all retries are used.
inline constexpr Nanoseconds kMaxExtension = 60'000'000'000;

/// How long a requester waits for an acknowledgement. `exponent`: the timeout attribute of the queue pair, 0 to 31; 0
/// means no timeout. Source: InfiniBand Architecture Specification vol. 1, Local ACK Timeout: one to four times 4.096
/// us * 2^exponent. A user-space NIC may have to wait for a processor, so this is four times that time, but at most a
/// second longer than that time. A long timeout already covers such a wait, and programs expect an error soon after it.
constexpr Nanoseconds acknowledgement_timeout(unsigned exponent) {
  if (exponent == 0) return kNever;
  const Nanoseconds requested = Nanoseconds{4096} << exponent;
  return requested + std::min<Nanoseconds>(3 * requested, 1'000'000'000);
}

/// The timeout, the probe and the RNR wait of a requester, and its limits of repetitions.
///
/// The program sets the timeout. A probe repeats one packet if the peer has been silent for 2 ms, and then after
/// intervals that double: the answer tells what was lost, long before the timeout. An RNR wait follows an RNR NAK.
class RetransmissionTimer {
 public:
  struct Settings {
    Nanoseconds timeout = kNever;
    unsigned retry_count = 7;
    unsigned rnr_retry = 7;  ///< 7: unlimited
  };

  /// Sets limits and the numbers of retries.
  void start(const Settings& settings) {
    settings_ = settings;
    reset_retries();
  }

  void stop() {
    rnr_until_ = 0;
    timeout_at_ = probe_at_ = kNever;
  }

  /// Restarts timeout and probe, or stops them if no packet is `outstanding` or during an RNR wait.
  void restart(Nanoseconds now, bool outstanding) {
    probe_after_ = kFirstProbe;
    if (!outstanding || in_rnr_wait()) {
      timeout_at_ = probe_at_ = kNever;
      return;
    }
    timeout_at_ = settings_.timeout == kNever ? kNever : now + settings_.timeout;
    probe_at_ = now + probe_after_;
  }

  bool running() const { return timeout_at_ != kNever || probe_at_ != kNever; }

  /// Time at which the earliest of the three timers ends; kNever if none is running.
  Nanoseconds deadline() const {
    const Nanoseconds waiting = std::min(timeout_at_, probe_at_);
    return in_rnr_wait() ? std::min(waiting, rnr_until_) : waiting;
  }

  /// Allows the full number of repetitions again, after an acknowledgement.
  void reset_retries() {
    retries_left_ = settings_.retry_count;
    rnr_retries_left_ = settings_.rnr_retry;
    extension_ = 0;
    refused_probes_ = 0;
  }

  bool in_rnr_wait() const { return rnr_until_ != 0; }
  /// False if no RNR retry is left.
  bool start_rnr_wait(Nanoseconds now, Nanoseconds delay) {
    constexpr unsigned kUnlimited = 7;
    if (settings_.rnr_retry != kUnlimited) {
      if (rnr_retries_left_ == 0) return false;
      --rnr_retries_left_;
    }
    rnr_until_ = now + delay;
    return true;
  }
  /// Ends the RNR wait if its time has passed. Returns whether it ended.
  bool end_rnr_wait(Nanoseconds now) {
    if (!in_rnr_wait() || now < rnr_until_) return false;
    rnr_until_ = 0;
    return true;
  }

  bool timed_out(Nanoseconds now) const { return now >= timeout_at_; }
  /// Uses one retry and starts the timeout again. False if no retry is left. `speed`: the speed of a LoadClock
  /// during the timeout. On a busy machine the peer may lack a processor, so a timeout counts only as this part of a
  /// retry. This lengthens the retries by kMaxExtension at most, plus one timeout.
  bool retry(Nanoseconds now, double speed) {
    if (extension_ >= kMaxExtension) speed = 1;
    if (retries_left_ < speed / 2) return false;
    retries_left_ -= speed;
    extension_ += static_cast<Nanoseconds>(static_cast<double>(settings_.timeout) * (1 - speed));
    timeout_at_ = now + settings_.timeout;
    probe_at_ = now + probe_after_;
    return true;
  }

  /// Notes that a probe is due and whether the host of the peer has reported, now or before, that its RoCE port is
  /// closed. True at the third such probe without an acknowledgement: an acknowledgement that the peer sent before it
  /// ended has arrived by then. Never with an unlimited timeout, with which the program asks to wait.
  bool note_refusal(bool reported) {
    constexpr int kProbes = 3;
    if (settings_.timeout == kNever) return false;
    if (reported || refused_probes_ > 0) ++refused_probes_;
    return refused_probes_ >= kProbes;
  }

  bool probe_due(Nanoseconds now) const { return now >= probe_at_; }
  /// Schedules the next probe after twice the interval.
  void back_off_probe(Nanoseconds now) {
    probe_after_ *= 2;
    postpone_probe(now);
  }
  void postpone_probe(Nanoseconds now) { probe_at_ = now + probe_after_; }

 private:
  static constexpr Nanoseconds kFirstProbe = 2'000'000;

  Settings settings_;
  double retries_left_ = 0;
  Nanoseconds extension_ = 0;  ///< time of the timeouts since the last acknowledgement that did not count
  int refused_probes_ = 0;     ///< probes since the last acknowledgement and the first refusal
  unsigned rnr_retries_left_ = 0;
  Nanoseconds rnr_until_ = 0;  ///< 0: no RNR wait
  Nanoseconds timeout_at_ = kNever;
  Nanoseconds probe_at_ = kNever;
  Nanoseconds probe_after_ = 0;  ///< interval, doubled by each unanswered probe
};

/// Recognizes reports that repeat an earlier report, so that the requester reacts once to each event.
class LossRecovery {
 public:
  void start(Psn first_psn) {
    recovery_end_ = first_psn;
    gap_known_ = false;
  }

  /// Whether loss or congestion at `oldest`, the oldest packet not acknowledged, is a new event. Then everything up to
  /// `sent_end` belongs to this event.
  bool begin(Psn oldest, Psn sent_end) {
    if (oldest.after(recovery_end_) < 0) return false;
    recovery_end_ = sent_end;
    return true;
  }

  /// Notes a timeout: packets up to `sent_end` will be sent again.
  void timed_out(Psn sent_end) {
    recovery_end_ = sent_end;
    gap_known_ = false;
  }

  /// Whether a missing response at `psn` was not noticed before.
  bool note_gap(Psn psn) {
    if (gap_known_ && gap_ == psn) return false;
    gap_ = psn;
    gap_known_ = true;
    return true;
  }
  void forget_gap() { gap_known_ = false; }

  /// Whether a sequence NAK for `psn` is new. A second NAK within 200 µs answers a packet that was sent before
  /// the repetition.
  bool note_nak(Psn psn, Nanoseconds now) {
    constexpr Nanoseconds kRepetitionTime = 200'000;
    if (nak_ == psn && now < nak_until_) return false;
    nak_ = psn;
    nak_until_ = now + kRepetitionTime;
    return true;
  }

 private:
  Psn recovery_end_;  ///< loss before this packet has been counted
  Psn gap_;           ///< the missing response that was requested again
  bool gap_known_ = false;
  Psn nak_;                    ///< the packet that the last NAK asked for
  Nanoseconds nak_until_ = 0;  ///< until then NAKs for `nak_` are ignored
};

}  // namespace plugfest::roce
