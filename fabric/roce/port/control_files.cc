#include "fabric/roce/port/control_files.h"

#include <cstdio>
#include <stdexcept>
#include <utility>

namespace plugfest::roce {

ControlFiles::ControlFiles(Device device, const std::optional<FaultPlan>& given)
    : device_(std::move(device)),
      faults_(given, device_.folder),
      log_target_(device_.folder),
      seen_changes_(device_.change_counter.changes()) {
  open_capture();
  apply_faults();
}

void ControlFiles::look() {
  seen_changes_ = device_.change_counter.changes();
  const bool capture_changed = log_target_.reload();
  if (capture_changed) open_capture();
  if (faults_.reload() || capture_changed) apply_faults();
}

void ControlFiles::apply_faults() {
  device_.receive_faults.faults().set_plans(faults_.plans());
  device_.transmit_path.faults().set_plans(faults_.plans());
  if (!log_) return;
  std::string active;
  for (const FaultPlan& plan : faults_.plans())
    if (plan.any()) active += (active.empty() ? "" : "; ") + text_of(plan);
  if (!active.empty() || faults_noted_) log_->comment("faults from here: " + (active.empty() ? "none" : active));
  faults_noted_ = !active.empty();
}

void ControlFiles::open_capture() {
  device_.transmit_path.set_log(nullptr);
  device_.receive_faults.set_log(nullptr);
  log_.reset();
  faults_noted_ = false;
  if (log_target_.file().empty()) return;
  try {
    log_.emplace(log_target_.file(), device_.name, LogExtent::from_environment());
    device_.transmit_path.set_log(&*log_);
    if (log_->extent().received) device_.receive_faults.set_log(&*log_);
  } catch (const std::runtime_error& error) {
    if (log_target_.from_environment()) throw;  // out of the constructor: the environment does not change later
    std::fprintf(stderr, "plugfest: %s\n", error.what());
  }
}

}  // namespace plugfest::roce
