// When a reliable queue pair repeats packets.
#pragma once

#include <algorithm>

#include "fabric/system/clock.h"

namespace plugfest::roce {

/// The timeout, the probe and the RNR wait of a requester, and how often it may repeat.
///
/// The timeout is the one that the program set. A probe repeats one packet if the peer has been silent for 2 ms, and
/// then after intervals that double: its answer tells what was lost, long before the timeout. An RNR wait follows an
/// RNR NAK.
class RetransmissionTimer {
 public:
  struct Settings {
    Nanoseconds timeout = kNever;
    unsigned retry_count = 7;
    unsigned rnr_retry = 7;  ///< 7: unlimited
  };

  /// Sets limits and stops all timers.
  void start(const Settings& settings) {
    settings_ = settings;
    reset_retries();
  }

  void stop() {
    rnr_until_ = 0;
    timeout_at_ = probe_at_ = kNever;
  }

  /// Starts timeout and probe anew, or stops them if no packet is `outstanding` or during an RNR wait.
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

  /// When the earliest of the three ends; kNever if none is running.
  Nanoseconds deadline() const {
    const Nanoseconds waiting = std::min(timeout_at_, probe_at_);
    return in_rnr_wait() ? std::min(waiting, rnr_until_) : waiting;
  }

  /// Allows the full number of repetitions again, after an acknowledgement.
  void reset_retries() {
    retries_left_ = settings_.retry_count;
    rnr_retries_left_ = settings_.rnr_retry;
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
  /// Ends the RNR wait if it is over. True if it was.
  bool end_rnr_wait(Nanoseconds now) {
    if (!in_rnr_wait() || now < rnr_until_) return false;
    rnr_until_ = 0;
    return true;
  }

  bool timed_out(Nanoseconds now) const { return now >= timeout_at_; }
  /// Uses one retry and starts the timeout again. False if no retry is left. `speed`: of a LoadClock during the
  /// timeout. On a busy machine the peer may have got no processor, so that a timeout counts only as this part of a
  /// retry.
  bool retry(Nanoseconds now, double speed) {
    if (retries_left_ < speed / 2) return false;
    retries_left_ -= speed;
    timeout_at_ = now + settings_.timeout;
    probe_at_ = now + probe_after_;
    return true;
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
  unsigned rnr_retries_left_ = 0;
  Nanoseconds rnr_until_ = 0;  ///< 0: no RNR wait
  Nanoseconds timeout_at_ = kNever;
  Nanoseconds probe_at_ = kNever;
  Nanoseconds probe_after_ = 0;  ///< interval, doubled by each unanswered probe
};

}  // namespace plugfest::roce
