// Where a NIC's fault plans come from, and when they change.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fabric/roce/faults/plan.h"
#include "fabric/system/file_version.h"

namespace plugfest::roce {

/// A file of plans that may change at any time. Not thread-safe.
class FollowedFile {
 public:
  explicit FollowedFile(std::filesystem::path file) : file_(std::move(file)) {}

  /// Looks whether the file is another than last time, and reads it then. True if the plans are others now. A file that
  /// is absent has none. One that cannot be understood leaves the plans as they are and says so on standard error,
  /// once.
  bool look();
  const std::vector<FaultPlan>& plans() const { return plans_; }

 private:
  std::filesystem::path file_;
  FileVersion version_;
  std::vector<FaultPlan> plans_;
};

/// All plans of one NIC: PLUGFEST_ROCE_FAULTS, the lines of PLUGFEST_ROCE_FAULTS_FILE, and those of two files of the
/// device, `link` (what its link is like) and `faults` (what is made to happen). Not thread-safe; guarded by the NIC's
/// lock.
class FaultSource {
 public:
  /// `given`: these plans and no others, whatever the environment says. `device_folder`: of the sysfs view, or empty;
  /// the files in it need not exist. Errors: std::runtime_error that names the variable, or file and line, if what
  /// the environment says cannot be understood.
  FaultSource(const std::optional<FaultPlan>& given, const std::filesystem::path& device_folder);

  const std::vector<FaultPlan>& plans() const { return plans_; }

  /// Looks at the files. True if the plans are others now.
  bool look();

 private:
  void gather();

  std::vector<FaultPlan> fixed_;
  std::vector<FollowedFile> files_;
  std::vector<FaultPlan> plans_;
};

}  // namespace plugfest::roce
