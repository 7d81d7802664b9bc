// A process to start: what to run, with which environment and descriptors.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace plugfest::netns {

/// A process to start in a host.
struct Command {
  /// Program and arguments; a program without a slash is looked up in PATH of the new environment.
  std::vector<std::string> argv;

  /// What differs from the caller's environment: a value, or nothing to remove the variable.
  std::vector<std::pair<std::string, std::optional<std::string>>> environment = {};

  /// Descriptors of the caller that become 0, 1 and 2.
  int stdin_fd = 0;
  int stdout_fd = 1;
  int stderr_fd = 2;

  /// More descriptors to pass: the caller's, and its number (3 or more) in the new process. All others are closed.
  struct Descriptor {
    int fd = -1;
    int number = -1;
  };
  std::vector<Descriptor> descriptors = {};

  std::string working_directory = {};  ///< empty: the caller's
  bool new_process_group = false;      ///< so that kill(-pid, …) reaches it and its children
};

/// Starts a process in two namespaces and returns its id once the program is executed. It is killed when the calling
/// *thread* ends, so that thread must live as long as the processes may.
///
/// Safe in a program with threads: between the split and the execution nothing is called that could take a lock.
/// Errors: std::runtime_error "cannot run PROGRAM: reason".
pid_t start_process(const Command& command, int network_namespace_fd, int mount_namespace_fd);

}  // namespace plugfest::netns
