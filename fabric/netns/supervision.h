// Runs cleanup after this process has exited, and supervises child processes: reaping, signals, death with the parent.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <optional>

#include "fabric/system/file.h"
#include "fabric/system/process.h"

namespace plugfest::netns {

/// Removes the objects that the kernel does not remove when a process exits.
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
  Descriptor pipe_;  ///< write end of a pipe that the other process reads until end of file
  pid_t process_ = -1;
};

/// Forks. Errors: std::runtime_error.
pid_t fork_or_throw();

/// Kills a child when its parent dies, even if the parent dies before the child has asked the kernel for the death
/// signal. Construct the object before the fork, and call one function on each side.
class ParentDeath {
 public:
  /// Errors: std::runtime_error.
  ParentDeath();

  /// In the child: asks for a signal at the parent's death, and exits now if the parent is dead.
  void signal_me(int number) const;
  /// In the child: calls signal_me(SIGKILL).
  void kill_me() const;
  /// In the parent: keeps the end of the pipe that stays open while the parent lives.
  void keep_alive() const;

 private:
  int read_end_ = -1;
  int write_end_ = -1;
};

/// The result of supervise() if it has killed a stopped child.
inline constexpr int kKilledWhileStopped = kKilledBySignal + SIGSTOP;

/// Forwards the caller's signals to the child and stops when the job is stopped. Returns the child's exit code after it
/// has exited. If the child, or a child of it that runs the same program, is stopped or traced 2 s after a signal that
/// ends programs, kills the child and returns kKilledWhileStopped. `all`: every signal, blocked in the caller.
int supervise(pid_t child, const sigset_t& all);

/// Kills every descendant of this process and waits until all have exited, except those named to let_finish(), which
/// it only waits for. This process must be a subreaper (PR_SET_CHILD_SUBREAPER): it then gets the orphans. A descendant
/// of another user survives.
void end_descendants();

/// Names a descendant process that exits without a signal when its work is done; end_descendants() waits for it. At
/// most 16 processes; no effect before share_list().
void let_finish(pid_t process);
/// Makes the list of let_finish() common to this process and the children that it forks from now on.
/// Errors: std::bad_alloc.
void share_list();

}  // namespace plugfest::netns
