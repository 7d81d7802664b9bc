// Follows the files that control a device while it runs: fault plans and the name of a capture file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "fabric/roce/capture/packet_log.h"
#include "fabric/roce/counters/page.h"
#include "fabric/roce/faults/plan.h"
#include "fabric/roce/port/receive_faults.h"
#include "fabric/roce/port/transmit_path.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Applies the fault plans (faults/plan.h) and the choice of a capture file (capture/packet_log.h) of one device to
/// the packets that it sends and receives.
///
/// Not thread-safe; guarded by the NIC's lock.
class ControlFiles {
 public:
  /// The device of the files, and the objects to which the contents apply. The references must outlive the
  /// ControlFiles.
  struct Device {
    std::string name;                   ///< "roce_eth0"
    std::filesystem::path folder;       ///< the device's folder in the sysfs view, or empty
    const CounterSlot& change_counter;  ///< counts announce_change() (counters/page.h)
    TransmitPath& transmit_path;
    ReceiveFaults& receive_faults;
  };

  /// Applies the contents of the files. `given`: fault plans that replace the plans of environment and files. Errors:
  /// std::runtime_error if the environment contains an invalid fault plan or a capture file that cannot be written.
  ControlFiles(Device device, const std::optional<FaultPlan>& given);

  /// Applies announced changes, and every 10 ms changes that were not announced.
  void follow(Nanoseconds now) {
    if (now >= next_look_) {
      next_look_ = now + kLookInterval;
      look();
    }
    follow_announced();
  }

  /// Applies changes if announce_change() was called since the last call.
  void follow_announced() {
    if (device_.change_counter.changes() != seen_changes_) look();
  }

  /// Whether captured packets wait for write_capture().
  bool capture_pending() const { return log_ && log_->pending(); }
  void write_capture() {
    if (log_) log_->write_out();
  }

  /// Leaves the capture file to the parent, in a child process after fork.
  void close_in_child() {
    if (log_) log_->close_in_child();
  }

 private:
  static constexpr Nanoseconds kLookInterval = 10'000'000;

  void look();
  void apply_faults();
  void open_capture();

  const Device device_;
  FaultSource faults_;
  LogTarget log_target_;
  std::optional<PacketLog> log_;
  bool faults_noted_ = false;  ///< the capture file contains a comment that faults are active
  std::uint64_t seen_changes_ = 0;
  Nanoseconds next_look_ = 0;
};

}  // namespace plugfest::roce
