// The file that a NIC captures its packets to, if any.
#pragma once

#include <filesystem>
#include <string>

#include "fabric/system/file.h"

namespace plugfest::roce {

/// PLUGFEST_ROCE_PCAP names the file. Without it, the file `pcap` in the device's folder of the sysfs view holds the
/// name, and may change at any time. Not thread-safe; guarded by the NIC's lock.
class LogTarget {
 public:
  /// `device_folder` may be empty.
  explicit LogTarget(const std::filesystem::path& device_folder);

  /// Reads the name again if it may have changed. Returns true if it has changed.
  bool reload();

  /// The capture file; empty: no capture.
  const std::filesystem::path& file() const { return file_; }
  bool from_environment() const { return from_environment_; }

 private:
  std::filesystem::path control_;  ///< file that holds the name; empty: none
  FileVersion version_;
  std::filesystem::path file_;
  bool from_environment_ = false;
};

/// Makes all processes of this host that use the device capture to `file`, starting with the next packet. An empty name
/// ends the capture. `device_folder`: /sys/class/infiniband/roce_eth0. Errors: std::runtime_error that names the file.
void set_device_log(const std::filesystem::path& device_folder, const std::filesystem::path& file);

}  // namespace plugfest::roce
