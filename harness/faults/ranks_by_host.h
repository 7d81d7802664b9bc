// Stops and kills the ranks of a host.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "fabric/system/file.h"
#include "harness/control/launcher.h"

namespace plugfest::faults {

/// A launcher that starts ranks through another launcher and keeps a process descriptor (pidfd) for each, which never
/// refers to a later process with the same id. Thread safety: any thread.
class RanksByHost : public control::Launcher {
 public:
  /// `launcher` must outlive it.
  explicit RanksByHost(control::Launcher& launcher) : launcher_(launcher) {}
  pid_t launch(const control::LaunchRequest& request) override;

  /// Sends SIGSTOP to all ranks of a host, including ranks that start later, or SIGCONT.
  void freeze(const std::string& host, bool frozen);
  /// Sends SIGKILL to the current ranks of a host.
  void kill(const std::string& host);

 private:
  /// Signals all ranks of a host, and removes ranks that have exited from the list.
  void signal(const std::string& host, int number);

  control::Launcher& launcher_;
  std::mutex mutex_;
  std::map<std::string, std::vector<Descriptor>> of_host_;
  std::set<std::string> frozen_;
};

}  // namespace plugfest::faults
