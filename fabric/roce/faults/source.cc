// Reads the environment, and follows files.
#include "fabric/roce/faults/source.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "fabric/roce/faults/file.h"

namespace plugfest::roce {

namespace {

constexpr Nanoseconds kInterval = 10'000'000;

constexpr const char* kTextVariable = "PLUGFEST_ROCE_FAULTS";
constexpr const char* kFileVariable = "PLUGFEST_ROCE_FAULTS_FILE";

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

}  // namespace

bool FollowedFile::look() {
  struct stat now = {};
  if (stat(file_.c_str(), &now) != 0) now = {};
  const bool same = now.st_dev == seen_.device && now.st_ino == seen_.inode && now.st_size == seen_.bytes &&
                    now.st_mtim.tv_sec == seen_.written.tv_sec && now.st_mtim.tv_nsec == seen_.written.tv_nsec;
  if (same) return false;
  seen_ = {now.st_dev, now.st_ino, now.st_size, now.st_mtim};
  try {
    std::vector<FaultPlan> plans;
    if (now.st_ino != 0) plans = read_fault_file(file_);
    if (plans == plans_) return false;
    plans_ = std::move(plans);
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plugfest: %s; the faults before stay\n", error.what());
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
      read_fault_file(file);  // what is wrong from the start is an error
      files_.emplace_back(file);
    }
    if (!device_folder.empty()) files_.emplace_back(device_folder / "faults");
  }
  for (FollowedFile& file : files_) file.look();
  gather();
}

void FaultSource::gather() {
  plans_ = fixed_;
  for (const FollowedFile& file : files_) plans_.insert(plans_.end(), file.plans().begin(), file.plans().end());
}

bool FaultSource::look() {
  bool any = false;
  for (FollowedFile& file : files_) any |= file.look();
  if (any) gather();
  return any;
}

bool FaultSource::look_if_due(Nanoseconds now) {
  if (files_.empty() || now < look_at_) return false;
  look_at_ = now + kInterval;
  return look();
}

}  // namespace plugfest::roce
