// The two sides of a process that has split in two, one inside namespaces and one outside: who waits for whom, who
// dies with whom.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>

namespace plugfest::netns {

/// Exit code of a process that signal n killed: 128 + n.
constexpr int kSignalled = 128;

/// Forks. Errors: std::runtime_error.
pid_t fork_or_throw();

/// The pipe by which a child knows that its parent has lived long enough for the death signal to be asked for. To be
/// made before the fork.
class Lifeline {
 public:
  /// Errors: std::runtime_error.
  Lifeline();

  /// In the child: SIGKILL when the parent dies, and at once if it is dead already.
  void die_with_parent() const;
  /// In the parent: keeps the end that tells the child of its death.
  void hold() const;

 private:
  int read_end_ = -1;
  int write_end_ = -1;
};

/// Reaps what has ended; the exit code of `main_child` once that is among it.
std::optional<int> reap(pid_t main_child);

/// Passes the signals that the caller gets on to the child, stops with the job, and returns the child's exit code once
/// it has ended. `all`: every signal, blocked in the caller.
int supervise(pid_t child, const sigset_t& all);

}  // namespace plugfest::netns
