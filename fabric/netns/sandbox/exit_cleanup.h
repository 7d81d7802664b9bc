// Runs cleanup after this process has exited, also after SIGKILL.
#pragma once

#include <sys/types.h>

#include <functional>

namespace plugfest::netns {

/// Removes what the kernel does not remove by itself when a process exits.
///
/// The constructor forks a process that waits until this object is destroyed or this process exits, and then calls the
/// function. That process keeps every descriptor that is open at construction until the function has returned. A lock
/// that one of them holds is therefore held until the cleanup is complete.
class ExitCleanup {
 public:
  /// `function` runs in the other process and must not throw. Errors: std::runtime_error.
  explicit ExitCleanup(std::function<void()> function);
  /// Runs the cleanup now and waits until it is complete.
  ~ExitCleanup();
  ExitCleanup(const ExitCleanup&) = delete;
  ExitCleanup& operator=(const ExitCleanup&) = delete;

 private:
  int pipe_ = -1;  ///< write end of a pipe that the other process reads until end of file
  pid_t process_ = -1;
};

}  // namespace plugfest::netns
