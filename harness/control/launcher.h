// Starts, stops and kills the processes of ranks: in the hosts of a fabric, or on this machine without one.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/system/load_clock.h"

namespace plugfest::control {

/// Owns one process that a launcher has started, and kills it on destruction. One thread.
class ChildProcess {
 public:
  ChildProcess() = default;
  virtual ~ChildProcess() = default;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// -1 for a process on another machine.
  virtual pid_t pid() const = 0;
  /// True after `end`, even if the process had ended on its own before.
  virtual bool reaped() const = 0;
  virtual bool frozen() const = 0;
  /// True for a process that has ended on its own and has not been reaped.
  virtual bool has_ended() const = 0;

  /// Sends SIGSTOP and waits until every thread has stopped. False when the process ended instead.
  virtual bool freeze() = 0;
  virtual void thaw() = 0;
  /// Kills the process and the processes of its group, waits for its end, and returns its wait status; if it had
  /// already ended, the status of that end. nullopt when it was reaped before.
  virtual std::optional<int> end() = 0;
  /// Why the process ended, if its wait status does not show it: "host h3 has not answered for 10 s". Call it after
  /// `end`.
  virtual std::string end_reason() const { return ""; }
  /// For a process on another machine: the time in which it, or the process that forwards its messages, waited for a
  /// processor.
  virtual std::shared_ptr<const LoadClock::Meter> waited() const { return nullptr; }
};

class LocalProcess final : public ChildProcess {
 public:
  explicit LocalProcess(pid_t pid) : pid_(pid) {}
  ~LocalProcess() override { end(); }

  pid_t pid() const override { return pid_; }
  bool reaped() const override { return pid_ <= 0 || reaped_; }
  bool frozen() const override { return frozen_; }
  bool has_ended() const override;
  bool freeze() override;
  void thaw() override;
  std::optional<int> end() override;

 private:
  const pid_t pid_;
  bool reaped_ = false;
  bool frozen_ = false;
};

}  // namespace plugfest::control

namespace plugfest::netns {
class Fabric;
class Worker;
}  // namespace plugfest::netns

namespace plugfest::control {

/// Changes to a process's environment; nullopt removes the variable.
using Environment = std::vector<std::pair<std::string, std::optional<std::string>>>;

/// A process to start. Its stdin is empty. Descriptors stay open in the caller.
struct LaunchRequest {
  /// The name of the rank: "a.eth0" is interface eth0 of host a.
  std::string rank;
  std::vector<std::string> argv;
  Environment environment;
  /// Becomes stdout and stderr.
  int output_fd = -1;
  /// Pairs of a descriptor of the caller and its number in the new process.
  std::vector<std::pair<int, int>> descriptors;
};

/// Starts processes. The caller waits for them. The kernel kills them when this process ends, even after SIGKILL.
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

/// The host of a rank or an interface: "a" for "a.eth0".
std::string host_of(const std::string& rank);

/// The path of plugfest-rank: in the folder of this executable, or in the folder bin beside that folder.
/// Errors: std::runtime_error with both folders.
std::string rank_program();

}  // namespace plugfest::control
