// Which reports of loss and congestion are new to a reliable queue pair.
#pragma once

#include "fabric/roce/wire/psn.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Recognizes reports that repeat an earlier one, so that the requester reacts once to each event.
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

  /// A timeout: packets up to `sent_end` will be sent again.
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

  /// Whether a sequence NAK for `psn` is new. A second one within 200 µs answers a packet that was sent before the
  /// repetition.
  bool note_nak(Psn psn, Nanoseconds now) {
    constexpr Nanoseconds kRepetitionTime = 200'000;
    if (nak_ == psn && now < nak_until_) return false;
    nak_ = psn;
    nak_until_ = now + kRepetitionTime;
    return true;
  }

 private:
  Psn recovery_end_;  ///< loss before this packet has been counted
  Psn gap_;           ///< a missing response that was requested again
  bool gap_known_ = false;
  Psn nak_;                    ///< the packet that the last NAK asked for
  Nanoseconds nak_until_ = 0;  ///< NAKs for it are ignored until then
};

}  // namespace plugfest::roce
