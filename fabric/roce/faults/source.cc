#include "fabric/roce/faults/source.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "fabric/roce/faults/file.h"

namespace plugfest::roce {

namespace {

constexpr const char* kTextVariable = "PLUGFEST_ROCE_FAULTS";
constexpr const char* kFileVariable = "PLUGFEST_ROCE_FAULTS_FILE";

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

}  // namespace

bool WatchedFaultFile::reload() {
  if (!version_.changed(file_)) return false;
  try {
    std::vector<FaultPlan> plans;
    if (version_.exists()) plans = read_fault_file(file_);
    if (plans == plans_) return false;
    plans_ = std::move(plans);
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plugfest: %s; previous faults stay active\n", error.what());
    return false;
  }
}

FaultSource::FaultSource(const std::optional<FaultPlan>& given, const std::filesystem::path& device_folder) {
  if (given) {
    fixed_ = {*given};
  } else {
    if (const char* const text = variable(kTextVariable)) {
      try {
        fixed_ = {parse_faults(text)};
      } catch (const std::runtime_error& error) {
        throw std::runtime_error(std::string(kTextVariable) + ": " + error.what());
      }
    }
    if (const char* const file = variable(kFileVariable)) {
      read_fault_file(file);  // throws; later errors are only reported
      files_.emplace_back(file);
    }
    if (!device_folder.empty()) {
      files_.emplace_back(device_folder / "link");
      files_.emplace_back(device_folder / "faults");
    }
  }
  for (WatchedFaultFile& file : files_) file.reload();
  merge();
}

void FaultSource::merge() {
  plans_ = fixed_;
  for (const WatchedFaultFile& file : files_) plans_.insert(plans_.end(), file.plans().begin(), file.plans().end());
}

bool FaultSource::reload() {
  bool changed = false;
  for (WatchedFaultFile& file : files_) changed |= file.reload();
  if (changed) merge();
  return changed;
}

}  // namespace plugfest::roce
