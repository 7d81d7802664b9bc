// Starts the processes of ranks: in the hosts of a fabric, or on this machine without one.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/control/process/child_process.h"

namespace plugfest::netns {
class Fabric;
class Worker;
}  // namespace plugfest::netns

namespace plugfest::control {

/// Changes to a process's environment; nullopt removes the variable.
using Environment = std::vector<std::pair<std::string, std::optional<std::string>>>;

/// A process to start. Its stdin is empty. Descriptors stay open in the caller.
struct LaunchRequest {
  /// "a.eth0": interface eth0 of host a.
  std::string rank;
  std::vector<std::string> argv;
  Environment environment;
  /// Becomes stdout and stderr.
  int output_fd = -1;
  /// The caller's descriptor, and its number in the new process.
  std::vector<std::pair<int, int>> descriptors;
};

/// The caller waits for the processes. The kernel kills them when this process ends, also after SIGKILL.
/// Thread safety: any thread.
class Launcher {
 public:
  virtual ~Launcher() = default;
  /// Starts a child of this process. Errors: std::runtime_error with the reason.
  virtual pid_t launch(const LaunchRequest& request) = 0;
  /// Starts a process that may be on another machine. Errors: std::runtime_error with the reason.
  virtual std::unique_ptr<ChildProcess> start(const LaunchRequest& request) {
    return std::make_unique<LocalProcess>(launch(request));
  }
};

/// Starts ranks in the hosts of a fabric.
class FabricLauncher : public Launcher {
 public:
  explicit FabricLauncher(netns::Fabric& fabric) : fabric_(fabric) {}
  pid_t launch(const LaunchRequest& request) override;

 private:
  netns::Fabric& fabric_;
};

/// Starts ranks in the caller's namespaces; for tests, and for plugins that need no fabric.
class PlainLauncher : public Launcher {
 public:
  PlainLauncher();
  ~PlainLauncher() override;
  pid_t launch(const LaunchRequest& request) override;

 private:
  /// The kernel kills a process when the thread that started it ends, so this thread runs as long as the launcher
  /// exists.
  std::unique_ptr<netns::Worker> starter_;
};

/// The host of a rank or an interface: "a", for "a.eth0".
std::string host_of(const std::string& rank);

/// The path of plugfest-rank: in the folder of this executable, or in the folder bin beside that folder.
/// Errors: std::runtime_error with both folders.
std::string rank_program();

}  // namespace plugfest::control
