// The page that all processes of a host share for one device: what each has counted, and the word that something about
// the device was changed.
//
// It is the file `.counters` in the device's folder of the sysfs view. Each process counts in a slot of its own, so
// counting is plain addition. A slot is held by a file lock, which ends with its process; the counts stay, and the next
// process to take the slot goes on from them. So the sum over all slots is what the device has counted, whatever became
// of its processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "fabric/roce/counters/counters.h"
#include "fabric/system/descriptor.h"

namespace plugfest::roce {

/// Makes the page of a device; one that is there stays as it is. Errors: std::runtime_error that names the file.
void make_counter_page(const std::filesystem::path& device_folder);

/// The sum over all processes, also ended ones. Nothing if there is no page. Any process of any user who may read.
std::optional<Counters> read_counter_page(const std::filesystem::path& device_folder);

/// Has the processes look at the files of the device before they handle another packet. Nothing without a page.
void announce_change(const std::filesystem::path& device_folder);

/// One process's part of the page. Where there is no page, or no room on it, the process counts for itself.
/// Thread safety: as said at each member; construction and destruction are the owner's.
class CounterSlot {
 public:
  /// `device_folder` may be empty.
  explicit CounterSlot(const std::filesystem::path& device_folder);
  ~CounterSlot();
  CounterSlot(const CounterSlot&) = delete;
  CounterSlot& operator=(const CounterSlot&) = delete;

  bool shared() const { return mapped_ != nullptr; }

  /// Guarded by the NIC's lock.
  Counters& counters() { return *counters_; }
  /// What was counted since construction. Guarded by the NIC's lock.
  Counters own() const { return *counters_ - before_; }

  /// Differs from before once announce_change() was called. Any thread.
  std::uint64_t changes() const;

  enum class Published { kDone, kNotYet, kImpossible };
  /// Writes the sum over all slots into the device's counter files, see names.h. Not yet if another process is at it,
  /// or did so within `interval_ns`. Any one thread at a time, without the NIC's lock.
  Published publish(std::int64_t interval_ns);

  /// In the child after fork: the slot stays the parent's.
  void close_in_child() { file_ = Descriptor(); }

 private:
  bool claim();

  std::filesystem::path folder_;
  Descriptor file_;
  std::byte* mapped_ = nullptr;  ///< the whole page
  std::unique_ptr<Counters> private_;
  Counters* counters_ = nullptr;
  Counters before_;
};

}  // namespace plugfest::roce
