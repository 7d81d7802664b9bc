// Helps tests: selects long tests, catches error messages, makes temporary folders, runs shell commands.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "fabric/system/file.h"
#include "fabric/system/process.h"

namespace plugfest {

/// Whether long tests run: scripts/test --all sets PLUGFEST_TEST_ALL.
inline bool runs_long_tests() { return std::getenv("PLUGFEST_TEST_ALL") != nullptr; }

/// Calls `action`. Returns the message of the std::runtime_error that it throws, or "no error".
inline std::string error_message(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

/// Creates an empty folder in $TMPDIR (default /tmp), and removes it with its content on destruction.
/// Errors: std::system_error if the folder cannot be created.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = std::filesystem::temp_directory_path() / "plugfest-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  operator const std::filesystem::path&() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

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

/// In a test: skips it unless long tests run.
#define PLUGFEST_LONG_TEST() \
  if (!plugfest::runs_long_tests()) GTEST_SKIP() << "only with scripts/test --all"
