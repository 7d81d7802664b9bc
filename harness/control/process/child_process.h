// The process of a rank: stopping, continuing and killing it.
#pragma once

#include <sys/types.h>

#include <optional>

namespace plugfest::control {

/// Owns one child process and kills it on destruction. One thread.
class ChildProcess {
 public:
  ChildProcess() = default;
  ~ChildProcess() { end(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Takes ownership of child `pid`.
  void adopt(pid_t pid) { pid_ = pid; }

  pid_t pid() const { return pid_; }
  /// False after `end`; true for a process that has ended on its own and has not been reaped.
  bool alive() const { return pid_ > 0 && !reaped_; }
  bool frozen() const { return frozen_; }
  /// True for a process that has ended on its own and has not been reaped.
  bool has_ended() const;

  /// Sends SIGSTOP and waits until every thread has stopped. False when the process ended instead.
  bool freeze();
  /// Sends SIGCONT.
  void thaw();
  /// Kills the process and the processes of its group, waits for its end, and returns its wait status, which is that of
  /// an earlier end if it had already ended. nullopt when it was reaped before.
  std::optional<int> end();

 private:
  pid_t pid_ = -1;
  bool reaped_ = false;
  bool frozen_ = false;
};

}  // namespace plugfest::control
