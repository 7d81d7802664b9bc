// Whether a NIC writes its packets to a file, and to which.
#pragma once

#include <filesystem>
#include <string>

#include "fabric/system/file_version.h"

namespace plugfest::roce {

/// PLUGFEST_ROCE_PCAP in the environment names the file; else the first line of `pcap` in the device's folder of the
/// sysfs view, which may change at any time. Not thread-safe; guarded by the NIC's lock.
class LogChoice {
 public:
  /// `device_folder` may be empty.
  explicit LogChoice(const std::filesystem::path& device_folder);

  /// Looks again. True if the choice is another now.
  bool look();

  /// Where packets go; empty: nowhere.
  const std::filesystem::path& file() const { return file_; }
  bool from_environment() const { return from_environment_; }

 private:
  std::filesystem::path control_;  ///< empty: nothing to look at
  FileVersion version_;
  std::filesystem::path file_;
  bool from_environment_ = false;
};

/// Has every process of this host that uses the device write its packets to `file`, from the next packet on; an empty
/// name ends that. `device_folder`: /sys/class/infiniband/roce_eth0. Errors: std::runtime_error that names the file.
void set_device_log(const std::filesystem::path& device_folder, const std::filesystem::path& file);

}  // namespace plugfest::roce
