// The ranks of each host, to be stopped and killed from outside of the rule that drives them.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "fabric/system/descriptor.h"
#include "harness/control/process/launcher.h"

namespace plugfest::faults {

/// Starts ranks through another launcher and remembers them, each by a descriptor that means this process and never one
/// that got its number later. Thread safety: any thread.
class RanksByHost : public control::Launcher {
 public:
  /// `launcher` must outlive it.
  explicit RanksByHost(control::Launcher& launcher) : launcher_(launcher) {}
  pid_t launch(const control::LaunchRequest& request) override;

  /// SIGSTOP for all ranks of a host, those that start later too, or SIGCONT.
  void freeze(const std::string& host, bool frozen);
  /// SIGKILL for the ranks that a host has.
  void kill(const std::string& host);

 private:
  /// Signals all ranks of a host, and forgets those that have ended.
  void signal(const std::string& host, int number);

  control::Launcher& launcher_;
  std::mutex mutex_;
  std::map<std::string, std::vector<Descriptor>> of_host_;
  std::set<std::string> frozen_;
};

}  // namespace plugfest::faults
