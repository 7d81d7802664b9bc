// Starts the processes of ranks. One implementation per way of starting: hosts of a fabric, this machine as it is.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plugfest::netns {
class Fabric;
}

namespace plugfest::control {

/// A process to start; descriptors are the caller's and stay open there.
struct LaunchRequest {
  /// "a.eth0": interface eth0 of host a.
  std::string rank;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::optional<std::string>>> environment;
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
  pid_t launch(const LaunchRequest& request) override;
};

/// The program plugfest-rank that belongs to this build: beside this executable, or in ../bin. Errors:
/// std::runtime_error that names where it was looked for.
std::string rank_program();

}  // namespace plugfest::control
