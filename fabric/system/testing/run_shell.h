// Runs a command and captures its output.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>
#include <system_error>

#include "fabric/system/descriptor.h"
#include "fabric/system/exit_code.h"

namespace plugfest {

struct ShellResult {
  int exit_code = -1;  ///< 128 plus the signal number after a signal
  std::string output;  ///< standard output and standard error
};

/// Runs `command` with /bin/sh and returns when all its processes have closed their output. Start `command` with "exec"
/// to get the exit code of a program that a signal ends. `in_child`: called in the child process before the shell.
/// Errors: std::system_error if no process can be created.
inline ShellResult run_shell(const std::string& command, const std::function<void()>& in_child = {}) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child == 0) {
    dup2(write_end.get(), STDOUT_FILENO);
    dup2(write_end.get(), STDERR_FILENO);
    if (in_child) in_child();
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  write_end.close();
  ShellResult result;
  char buffer[4096];
  for (ssize_t count; (count = read(read_end.get(), buffer, sizeof(buffer))) > 0;)
    result.output.append(buffer, static_cast<std::size_t>(count));
  int status = 0;
  waitpid(child, &status, 0);
  result.exit_code = exit_code_of(status);
  return result;
}

}  // namespace plugfest
