// A command, its environment and descriptors, and how to start it in the namespaces of a host.
#pragma once

#include <sys/types.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace plugfest::netns {

struct Command {
  /// Program and arguments. A program name without a slash is searched in PATH of the new environment.
  std::vector<std::string> argv;

  /// Changes to the caller's environment: a value sets the variable, nullopt removes it.
  std::vector<std::pair<std::string, std::optional<std::string>>> environment = {};

  /// Descriptors of the caller that become 0, 1 and 2.
  int stdin_fd = 0;
  int stdout_fd = 1;
  int stderr_fd = 2;

  /// More descriptors to pass. `fd`: a descriptor of the caller; `number`: its number in the new process, at least 3.
  /// All other descriptors are closed.
  struct Descriptor {
    int fd = -1;
    int number = -1;
  };
  std::vector<Descriptor> descriptors = {};

  std::string working_directory = {};  ///< empty: the caller's
  bool new_process_group = false;      ///< kill(-pid, …) then reaches the process and its children
  std::string host_name = {};          ///< what gethostname() returns; empty: the caller's
};

/// A program does not exist or cannot be executed. `exit_code`: what a shell would return, 127 or 126.
struct CannotExecute : std::runtime_error {
  CannotExecute(const std::string& text, int code) : std::runtime_error(text), exit_code(code) {}
  int exit_code;
};

/// Starts a process in two namespaces. Returns its id after the program has been executed. The kernel kills the process
/// when the calling *thread* exits.
///
/// Safe in a program with threads: the child takes no lock between the clone and the execve.
/// Errors: std::runtime_error "cannot run PROGRAM: reason"; CannotExecute if all but the execve() has succeeded.
pid_t start_process(const Command& command, int network_namespace_fd, int mount_namespace_fd);

}  // namespace plugfest::netns
