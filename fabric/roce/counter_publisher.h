// Publishes the counters of this process in the counter files of the device.
#pragma once

#include <filesystem>
#include <mutex>

#include "fabric/roce/counters/counters.h"
#include "fabric/roce/counters/page.h"
#include "fabric/roce/memory/nic_lock.h"
#include "fabric/roce/port/wakeup.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Owns this process's slot on the device's counter page, and writes the device's counter files (counters/counters.h)
/// at most every 100 ms while the counters change.
class CounterPublisher {
 public:
  /// `device_folder`: the device's folder in the sysfs view, or empty. `nic_lock` guards the counters.
  CounterPublisher(const std::filesystem::path& device_folder, NicLock& nic_lock, Wakeup& wakeup);

  CounterSlot& slot() { return slot_; }

  // The members from here to check() need the NIC's lock.

  Counters& counters() { return slot_.counters(); }

  bool check_due(Nanoseconds now) const { return now >= next_check_; }
  /// Schedules a publication if counters have changed since the last one, or if `capture_pending`: captured packets
  /// wait to be written.
  void check(Nanoseconds now, bool capture_pending);

  // Any thread may call the members below, without the NIC's lock.

  /// Time of the next publication; kNever if none is scheduled.
  Nanoseconds deadline() const { return timer_.deadline(); }

  /// Writes the counter files and schedules a new attempt if another process has just written them.
  void publish() { publish(kInterval, 1); }
  /// Writes the counter files at the end of the process. Waits up to 100 ms for another process that is writing them.
  void publish_finally() { publish(0, 100); }

 private:
  static constexpr Nanoseconds kInterval = 100'000'000;

  void publish(Nanoseconds interval, int attempts);

  NicLock& nic_lock_;
  CounterSlot slot_;
  Timer timer_;                   ///< time of the next publication
  Counters published_;            ///< the counters of this process at the last publication
  Nanoseconds published_at_ = 0;  ///< time of the last publication
  Nanoseconds next_check_ = 0;    ///< time of the next check()
  std::mutex publication_mutex_;  ///< held during a publication; taken before the NIC's lock
};

}  // namespace plugfest::roce
