// Refuses invalid fault plans in the files that users write.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "fabric/roce/faults/plan.h"
#include "fabric/system/file.h"

namespace plugfest::roce {

/// Watches the files `faults` of devices. When a file has an invalid plan, replaces its content by a comment with the
/// error and by the plans that stay active, so that the file never shows a plan that the NICs ignore.
///
/// Thread safety: any thread may call add().
class FaultFileGuard {
 public:
  FaultFileGuard() = default;
  ~FaultFileGuard();
  FaultFileGuard(const FaultFileGuard&) = delete;
  FaultFileGuard& operator=(const FaultFileGuard&) = delete;

  /// Watches the devices in a folder such as /sys/class/infiniband, even after the calling thread has left its mount
  /// namespace. Devices beyond the kernel's limits for inotify and descriptors are not watched.
  void add(const std::filesystem::path& class_infiniband);

 private:
  struct Device {
    Descriptor folder;
    std::vector<FaultPlan> active;
  };

  bool start();
  void serve();
  void check(Device& device);

  std::mutex mutex_;
  std::map<int, Device> devices_;  // key: the watch descriptor
  Descriptor changes_, stop_;
  std::thread thread_;
};

}  // namespace plugfest::roce
