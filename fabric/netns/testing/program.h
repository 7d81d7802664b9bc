// Programs that a test starts, with their output in a pipe.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "fabric/system/descriptor.h"

namespace plugfest::netns {

/// Path of a program in the folder of the running test program.
std::string beside_this_test(const std::string& name);

/// A copy of sandbox-exec that an ordinary user can run: the build may be in a folder that only root can enter, such as
/// /root. The destructor removes it.
class SandboxExecCopy {
 public:
  /// Errors: std::runtime_error, std::filesystem::filesystem_error.
  SandboxExecCopy();
  SandboxExecCopy(const SandboxExecCopy&) = delete;
  SandboxExecCopy& operator=(const SandboxExecCopy&) = delete;
  ~SandboxExecCopy();

  std::string path() const;

 private:
  char folder_[32] = "/tmp/plugfest-sandbox-XXXXXX";
};

/// A running program whose standard output and standard error share one pipe. The destructor kills it unless
/// wait_status() was called.
class Program {
 public:
  /// `argv[0]` is a path. `before_exec` runs in the child before it executes the program.
  /// Errors: std::runtime_error.
  explicit Program(
      std::vector<std::string> argv, const std::function<void()>& before_exec = [] {});
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  pid_t pid() const { return pid_; }
  /// The next line of output, without its line feed.
  std::string read_line();
  /// The output until all writers have closed the pipe.
  std::string read_rest();
  /// Waits until the program has exited. Returns the status of waitpid().
  int wait_status();

 private:
  Descriptor output_;
  pid_t pid_ = -1;
  bool waited_ = false;
};

/// A shell script inside a new sandbox.
Program in_sandbox(const std::string& script);

/// Runs a shell script inside a new sandbox, expects exit code 0, and returns its output.
std::string output_in_sandbox(const std::string& script);

/// Changes user and group of a process of root to nobody.
void become_ordinary_user();

}  // namespace plugfest::netns
