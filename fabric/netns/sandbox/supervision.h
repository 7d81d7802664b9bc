// Supervision of a child process: reaping, signal forwarding, and a child that dies with its parent.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>

namespace plugfest::netns {

/// Forks. Errors: std::runtime_error.
pid_t fork_or_throw();

/// Kills a child when its parent dies, also if the parent dies before the child has asked the kernel for the death
/// signal. Construct the object before the fork, and call one function on each side.
class ParentDeath {
 public:
  /// Errors: std::runtime_error.
  ParentDeath();

  /// In the child: asks for SIGKILL at the parent's death, and exits now if the parent is dead.
  void kill_me() const;
  /// In the parent: keeps the end of the pipe that stays open while the parent lives.
  void keep_alive() const;

 private:
  int read_end_ = -1;
  int write_end_ = -1;
};

/// Reaps all children that have exited. Returns the exit code of `main_child` if it is one of them.
std::optional<int> reap(pid_t main_child);

/// Forwards the caller's signals to the child and stops when the job is stopped. Returns the child's exit code after it
/// has exited. `all`: every signal, blocked in the caller.
int supervise(pid_t child, const sigset_t& all);

}  // namespace plugfest::netns
