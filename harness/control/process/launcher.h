// Starts the processes of ranks. One implementation per way of starting: hosts of a fabric, this machine as it is.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plugfest::netns {
class Fabric;
class Worker;
}  // namespace plugfest::netns

namespace plugfest::control {

/// Changes to a process's environment: a value, or nothing to remove the variable.
using Environment = std::vector<std::pair<std::string, std::optional<std::string>>>;

/// A process to start; descriptors are the caller's and stay open there. Its stdin is empty.
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

/// Thread safety: `launch` may be called from several threads at once. Processes are the caller's to wait for; they are
/// killed when this process ends, however it ends.
class Launcher {
 public:
  virtual ~Launcher() = default;
  /// Errors: std::runtime_error with the reason.
  virtual pid_t launch(const LaunchRequest& request) = 0;
};

/// Ranks in the hosts of a fabric; the part of the name before the last dot is the host.
class FabricLauncher : public Launcher {
 public:
  explicit FabricLauncher(netns::Fabric& fabric) : fabric_(fabric) {}
  pid_t launch(const LaunchRequest& request) override;

 private:
  netns::Fabric& fabric_;
};

/// Ranks on this machine, all in the caller's own namespaces; for tests and for plugins that want no fabric.
class PlainLauncher : public Launcher {
 public:
  PlainLauncher();
  ~PlainLauncher() override;
  pid_t launch(const LaunchRequest& request) override;

 private:
  /// A process is killed when the thread that started it ends, so that thread lives as long as the launcher.
  std::unique_ptr<netns::Worker> starter_;
};

/// The program plugfest-rank that belongs to this build: beside this executable, or in bin/ next to its folder. Errors:
/// std::runtime_error that names where it was looked for.
std::string rank_program();

}  // namespace plugfest::control
