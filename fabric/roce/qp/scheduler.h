// The queue pairs of a NIC: those that have work to do, and all by number.
#pragma once

#include <cerrno>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "fabric/roce/port/wakeup.h"
#include "fabric/roce/wire/address.h"
#include "fabric/system/clock.h"
#include "fabric/system/file.h"
#include "fabric/system/load_clock.h"
#include "fabric/system/number.h"

namespace plugfest::roce {

class QueuePair;

/// The membership of a queue pair in the scheduler's list. Only the scheduler uses the content.
class SchedulerEntry {
 private:
  friend class Scheduler;
  bool scheduled_ = false;
  bool timed_ = false;
};

/// The queue pairs of a NIC whose send_pending() or on_timer() must be called. send_pending() is called after the
/// packets that have arrived are handled, after the delay of an acknowledgement, or when the kernel has room again;
/// on_timer() is called at the queue pair's deadline. Idle queue pairs cost no time.
///
/// Thread safety: next_deadline() from any thread, the rest guarded by the NIC's lock.
class Scheduler {
 public:
  /// The longest delay of an acknowledgement. A peer that misses the acknowledgement asks for it after 2 ms.
  static constexpr Nanoseconds kMaxDelay = 50'000;

  /// Calls QueuePair::send_pending() after the packets that have arrived are handled.
  void schedule(QueuePair& queue_pair);

  /// Calls QueuePair::send_pending() in the next round of the NIC, or when kMaxDelay has passed.
  void delay_acknowledgement(QueuePair& queue_pair, Nanoseconds now);

  /// Calls QueuePair::send_pending() when the kernel has room for packets again.
  void wait_for_room(QueuePair& queue_pair);

  /// Calls QueuePair::on_timer() at QueuePair::deadline(), which is `deadline`; kNever: not at all. Must be called when
  /// the deadline becomes earlier.
  void call_at(QueuePair& queue_pair, Nanoseconds deadline);

  /// Removes the queue pair from all lists.
  void unschedule(QueuePair& queue_pair);

  /// The earliest deadline of a queue pair or of a delayed packet.
  Timer& timer() { return timer_; }
  Wakeup& wakeup() { return wakeup_; }
  /// Shows whether threads of this process wait for a processor.
  LoadClock& load_clock() { return load_clock_; }

  // The NIC calls the members below in each round.

  /// Schedules the queue pairs whose acknowledgements were delayed in an earlier round.
  void release_delayed_acknowledgements();

  void run(Nanoseconds now);

  bool any_blocked() const { return !blocked_.empty(); }
  /// Calls send_pending() of each queue pair that waits for room.
  void run_blocked(Nanoseconds now);

  /// Calls on_timer() of each queue pair whose deadline has passed, and arms the timer for the others. Precondition:
  /// the timer is not armed for a queue pair.
  void run_timers(Nanoseconds now);

  /// The deadline of the timer or of the delayed acknowledgements, whichever is earlier.
  Nanoseconds next_deadline() const;

 private:
  Wakeup wakeup_;
  Timer timer_{wakeup_};
  LoadClock load_clock_{LoadClock::Own::kProcess};
  std::vector<QueuePair*> scheduled_;
  std::vector<QueuePair*> timed_;    ///< all queue pairs with a deadline, and some that no longer have one
  std::vector<QueuePair*> delayed_;  ///< queue pairs with a delayed acknowledgement
  Timer delayed_timer_{wakeup_};     ///< time at which delayed acknowledgements must be sent
  std::vector<QueuePair*> blocked_;  ///< queue pairs that wait for room in the kernel
};

/// The queue pairs of a NIC by number and by multicast group. Not thread-safe; guarded by the NIC's lock.
class QueuePairTable {
 public:
  /// Gives the queue pair an unused random number whose high byte is the process slot `slot`. Errors: std::system_error
  /// with ENOMEM if no number is left.
  std::uint32_t add(QueuePair& queue_pair, std::uint8_t slot) {
    constexpr int kAttempts = 1 << 20;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::uint32_t number = static_cast<std::uint32_t>(slot) << 16 | (random_number() & 0xffff);
      if (queue_pairs_.try_emplace(number, &queue_pair).second) return number;
    }
    throw_errno("find an unused queue pair number", ENOMEM);
  }

  /// Precondition: attached to no group.
  void remove(std::uint32_t number) { queue_pairs_.erase(number); }

  /// Null if there is no queue pair with this number.
  QueuePair* find(std::uint32_t number) const {
    const auto found = queue_pairs_.find(number);
    return found == queue_pairs_.end() ? nullptr : found->second;
  }

  /// The queue pairs of each multicast group that has some.
  using Groups = std::map<Address, std::vector<QueuePair*>>;
  Groups& groups() { return groups_; }
  const Groups& groups() const { return groups_; }

 private:
  std::unordered_map<std::uint32_t, QueuePair*> queue_pairs_;
  Groups groups_;
};

}  // namespace plugfest::roce
