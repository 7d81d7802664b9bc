// Exit codes as shells define them, attributes of child processes, and the command line of this process.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <string>
#include <vector>

namespace plugfest {

/// Added to a signal's number: the exit code of a process that the signal killed.
inline constexpr int kKilledBySignal = 128;

/// The exit code in a status of waitpid(): the process's own, or 128 plus the number of the signal that killed it.
inline int exit_code_of(int status) {
  return WIFSIGNALED(status) ? kKilledBySignal + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Attributes for posix_spawn: a process group of its own, so that Ctrl-C reaches only the program that started it,
/// with the default actions of all signals and none blocked.
class JobAttributes {
 public:
  JobAttributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~JobAttributes() { posix_spawnattr_destroy(&attributes_); }
  JobAttributes(const JobAttributes&) = delete;
  JobAttributes& operator=(const JobAttributes&) = delete;

  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

std::vector<std::string> own_arguments();

/// The command with which the user started this program, "scripts/plugfest", for commands that the user may type again.
std::string program_as_typed();

/// Returns `word` quoted for the shell where necessary.
std::string shell_word(const std::string& word);

}  // namespace plugfest
