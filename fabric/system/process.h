// Runs programs, collects their output, waits for processes and reads their state; the command line of this process.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fabric/system/file.h"

namespace plugfest {

/// Added to a signal's number: the exit code of a process that the signal killed.
inline constexpr int kKilledBySignal = 128;

/// The exit code in a status of waitpid(): the process's own, or 128 plus the number of the signal that killed it.
inline int exit_code_of(int status) {
  return WIFSIGNALED(status) ? kKilledBySignal + WTERMSIG(status) : WEXITSTATUS(status);
}

/// "SIGKILL"; "signal 40" for a signal without a name.
std::string signal_name(int signal);

/// What a status of waitpid() says of a process: "was ended by SIGKILL" or "ended with code 3".
std::string end_text(int status);

/// Whether a child of this process has exited and has not been waited for.
bool has_ended(pid_t child);

/// Waits until a child of this process has exited. Returns its status as waitpid() does; -1 if the process is not a
/// child.
int await_status(pid_t child);

/// Waits until a child of this process has exited. Returns its exit code, or 128 plus the number of the signal that
/// killed it; -1 if the process is not a child.
int await_exit(pid_t child);

/// Reaps all children that have exited. Returns the exit code of `main_child` if it is one of them.
std::optional<int> reap(pid_t main_child);

/// The state of a process in /proc.
struct ProcessEntry {
  std::string name;  ///< name of the program's file, at most 15 characters
  char state = 0;    ///< 'R': runs, 'S': sleeps, 'T': is stopped, 't': is traced, 'Z': has ended, …
  pid_t parent = 0;
  pid_t group = 0;
};

/// The folder of a thread in /proc. Files of /proc/PID/task/TID have the same content, but reading one delays the
/// release of the process at its end by up to 20 ms: the kernel then waits for the cached names of the threads.
inline std::string thread_folder(pid_t thread) { return "/proc/" + std::to_string(thread); }

/// nullopt if there is no such process.
std::optional<ProcessEntry> process_entry(pid_t process);

/// CPU time of a process so far, in nanoseconds; 0 if it cannot be read.
std::int64_t cpu_time_of(pid_t process);

/// The ids of all processes in /proc.
std::vector<pid_t> all_processes();

/// A pipe. Programs that are executed do not inherit it.
struct Pipe {
  Descriptor read_end;
  Descriptor write_end;
};

/// Errors: std::runtime_error "cannot ACTION: REASON".
Pipe make_pipe(const std::string& action = "make a pipe");

/// An empty file in memory. Programs that are executed do not inherit it. Errors: std::runtime_error.
Descriptor make_memory_file(const char* name);

/// Reads a descriptor until its end. Errors: std::runtime_error.
std::string read_all(int fd);

/// The exit code and the output of a program.
struct Finished {
  int exit_code = 0;        ///< 127 if the program does not exist, 128 plus the signal's number if a signal killed it
  std::string output = {};  ///< standard output, and standard error if both share one pipe
  std::string errors = {};  ///< standard error
};

/// Runs a program with empty standard input. Returns when it has exited and all processes have closed its output.
/// `argv[0]` is searched in PATH. `folder`: the working folder, empty for the current one. `in_child`: called in the
/// child process before the program is executed. The program is killed when the calling thread exits.
/// Errors: std::runtime_error if no process can be created.
Finished run_program(std::vector<std::string> argv, const std::string& folder = {},
                     const std::function<void()>& in_child = {});

/// Pointers to `words`, with a null pointer at the end, as the exec functions require.
std::vector<char*> pointers_to(std::vector<std::string>& words);

/// The environment of this process with changes, as NAME=value: a value sets the variable, nullopt removes it.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::optional<std::string>>>& changes);

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
