// Exit codes in the convention of shells.
#pragma once

#include <sys/wait.h>

namespace plugfest {

/// Added to a signal's number: the exit code of a process that the signal killed.
inline constexpr int kKilledBySignal = 128;

/// The exit code in a status of waitpid(): the process's own, or 128 plus the number of the signal that killed it.
inline int exit_code_of(int status) {
  return WIFSIGNALED(status) ? kKilledBySignal + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace plugfest
