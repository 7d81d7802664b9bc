// The sources of a NIC's fault plans: environment and watched files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fabric/roce/faults/plan.h"
#include "fabric/system/file.h"

namespace plugfest::roce {

/// A file of plans that other processes may change at any time. Not thread-safe.
class WatchedFaultFile {
 public:
  explicit WatchedFaultFile(std::filesystem::path file) : file_(std::move(file)) {}

  /// Reads the file again if it has changed. Returns true if the plans have changed. An absent file has no plans. If
  /// the file cannot be parsed, the plans stay and one line goes to standard error.
  bool reload();
  const std::vector<FaultPlan>& plans() const { return plans_; }

 private:
  std::filesystem::path file_;
  FileVersion version_;
  std::vector<FaultPlan> plans_;
};

/// All plans of one NIC: the plan in PLUGFEST_ROCE_FAULTS, the file that PLUGFEST_ROCE_FAULTS_FILE names, and two files
/// of the device: `link` (properties of the link) and `faults` (faults set at run time).
/// Not thread-safe; guarded by the NIC's lock.
class FaultSource {
 public:
  /// `given`: the only plan, instead of environment and files. `device_folder`: folder of the sysfs view, or empty; its
  /// files need not exist. Errors: std::runtime_error that names the environment variable, or file and line, of a plan
  /// that cannot be parsed.
  FaultSource(const std::optional<FaultPlan>& given, const std::filesystem::path& device_folder);

  const std::vector<FaultPlan>& plans() const { return plans_; }

  /// Reads changed files again. Returns true if the plans have changed.
  bool reload();

 private:
  void merge();

  std::vector<FaultPlan> fixed_;
  std::vector<WatchedFaultFile> files_;
  std::vector<FaultPlan> plans_;
};

}  // namespace plugfest::roce
