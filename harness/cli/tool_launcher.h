// Runs ranks under a user's tool: --wrap 'valgrind -q', --wrap 'gdb -p {pid}'.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "harness/control/launcher.h"

namespace plugfest::cli {

/// Whether a command attaches to a running rank, instead of starting its program.
bool attaches_to_rank(const std::string& command);

/// Errors: std::runtime_error if the shell cannot run `command` before a program.
void require_runnable(const std::string& command);

/// Starts ranks with another launcher and a command of the user, which the shell runs. In the command, {rank} is the
/// name of the rank, such as a.eth0.
///
/// A command without {pid} gets the rank's program and arguments appended, and must execute it in its own process, as
/// valgrind, env and setarch do. The output of the rank goes to standard error.
///
/// A command with {pid} runs for the first rank only, unless it has {rank}. It controls the terminal until it ends. The
/// rank is used once the command traces it or has ended.
class ToolLauncher final : public control::Launcher {
 public:
  ToolLauncher(control::Launcher& launcher, std::string command);
  /// Waits until the commands have ended. The ranks must have ended before.
  ~ToolLauncher() override;
  pid_t launch(const control::LaunchRequest& request) override;

 private:
  void attach(const std::string& rank, pid_t pid);

  control::Launcher& launcher_;
  const std::string command_;
  std::atomic<bool> attached_{false};
  std::mutex waiting_mutex_;  // several threads launch ranks
  std::vector<std::thread> waiting_;
};

}  // namespace plugfest::cli
