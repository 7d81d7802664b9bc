// The counter page of a device: a file that all processes of a host map.
//
// The page is the file `.counters` in the device's folder of the sysfs view. Each process increments its own slot, so
// counting needs no atomic operations. A process holds its slot by a file lock, which ends with the process. The values
// stay, and the next owner of the slot continues from them: the sum over all slots is the total of the device, even
// after crashes. The page also has a change counter, which tells processes to reread the device's control files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "fabric/roce/counters/counters.h"
#include "fabric/system/file.h"

namespace plugfest::roce {

/// Creates the page of a device unless it exists. Errors: std::runtime_error that names the file.
void make_counter_page(const std::filesystem::path& device_folder);

/// Returns the sum over all processes, including ended ones; nullopt if the page does not exist. Needs read permission
/// only.
std::optional<Counters> read_counter_page(const std::filesystem::path& device_folder);

/// Makes all processes reread the control files of the device before their next packet. Does nothing without a page.
void announce_change(const std::filesystem::path& device_folder);

/// The slot of this process. Without a page, or if all slots are taken, the counters are private to the process.
/// Thread safety: see each member; construction and destruction are not thread-safe.
class CounterSlot {
 public:
  /// `device_folder` may be empty.
  explicit CounterSlot(const std::filesystem::path& device_folder);
  ~CounterSlot();
  CounterSlot(const CounterSlot&) = delete;
  CounterSlot& operator=(const CounterSlot&) = delete;

  /// True if the counters are on the page.
  bool shared() const { return mapped_ != nullptr; }

  /// Guarded by the NIC's lock.
  Counters& counters() { return *counters_; }
  /// Increments since construction. Guarded by the NIC's lock.
  Counters own() const { return *counters_ - before_; }

  /// The page's change counter, which announce_change() increments. Any thread.
  std::uint64_t changes() const;

  enum class Published { kDone, kNotYet, kImpossible };
  /// Writes the sum over all slots to the device's counter files (counters.h). Returns kNotYet if another process is
  /// writing them, or wrote them less than `interval_ns` ago. One thread at a time; does not need the NIC's lock.
  Published publish(std::int64_t interval_ns);

  /// To be called in the child after fork(): the slot belongs to the parent, whose lock lasts as long as any process
  /// has the file open or mapped. The counters stay valid, but private.
  void close_in_child();

 private:
  bool claim();

  std::filesystem::path folder_;
  Descriptor file_;
  std::byte* mapped_ = nullptr;  ///< the whole page
  std::unique_ptr<Counters> private_;
  Counters* counters_ = nullptr;
  Counters before_;  ///< values of the slot at construction
};

}  // namespace plugfest::roce
