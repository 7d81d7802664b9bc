// Which queue pairs have work to do, and when.
#pragma once

#include <vector>

#include "fabric/roce/port/wakeup.h"
#include "fabric/system/clock.h"
#include "fabric/system/load_clock.h"

namespace plugfest::roce {

class QueuePairEngine;

/// A queue pair's membership in the scheduler's list of queue pairs with work. Only the scheduler uses the content.
class SchedulerEntry {
 private:
  friend class Scheduler;
  bool scheduled_ = false;
};

/// The queue pairs of a NIC whose send_pending() must be called: after the packets at hand, after a delayed
/// acknowledgement has waited, or when the kernel has room again; and the timer of all queue pairs.
///
/// Thread safety: next_deadline() from any thread, the rest guarded by the NIC's lock.
class Scheduler {
 public:
  /// Calls QueuePairEngine::send_pending() after the packets at hand are handled.
  void schedule(QueuePairEngine& queue_pair);

  /// Calls QueuePairEngine::send_pending() in the next round of the NIC, at most 200 µs later.
  void delay_acknowledgement(QueuePairEngine& queue_pair, Nanoseconds now);

  /// Calls QueuePairEngine::send_pending() when the kernel has room for packets again.
  void wait_for_room(QueuePairEngine& queue_pair);

  /// Removes the queue pair from all lists.
  void unschedule(QueuePairEngine& queue_pair);

  /// The earliest deadline of a queue pair or of a delayed packet.
  Timer& timer() { return timer_; }
  Wakeup& wakeup() { return wakeup_; }
  /// Shows whether threads of this process wait for a processor.
  LoadClock& load_clock() { return load_clock_; }

  // --- for the NIC's rounds ---

  /// Schedules the queue pairs whose acknowledgements were delayed in an earlier round.
  void release_delayed_acknowledgements();

  /// Calls send_pending() of each scheduled queue pair.
  void run(Nanoseconds now);

  bool any_blocked() const { return !blocked_.empty(); }
  /// Calls send_pending() of each queue pair that waits for room.
  void run_blocked(Nanoseconds now);

  /// The earlier of the timer's deadline and that of delayed acknowledgements.
  Nanoseconds next_deadline() const;

 private:
  Wakeup wakeup_;
  Timer timer_{wakeup_};
  LoadClock load_clock_{LoadClock::Own::kProcess};
  std::vector<QueuePairEngine*> scheduled_;
  std::vector<QueuePairEngine*> delayed_;  ///< with a delayed acknowledgement
  Timer delayed_timer_{wakeup_};           ///< when delayed acknowledgements must be sent
  std::vector<QueuePairEngine*> blocked_;  ///< waiting for room in the kernel
};

}  // namespace plugfest::roce
