// Starts programs with their output in a pipe, for tests.
#pragma once

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "fabric/system/process.h"
#include "fabric/system/scratch_folder.h"

namespace plugfest::netns {

/// Path of a program in the folder of the running test program.
std::string beside_this_test(const std::string& name);

/// A copy of sandbox-exec that an ordinary user can run: the build may be in a folder that only root can enter, such as
/// /root.
class SandboxExecCopy {
 public:
  /// Errors: std::runtime_error, std::filesystem::filesystem_error.
  SandboxExecCopy();

  std::string path() const { return folder_ / "sandbox-exec"; }

 private:
  ScratchFolder folder_;
};

/// A running program whose standard output and standard error share one pipe. The destructor kills it unless
/// exit_code() was called.
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
  std::string read_rest() { return read_all(output_.get()); }
  /// Waits until the program has exited. Returns its exit code, or 128 plus the number of the signal that killed it.
  int exit_code();

 private:
  Descriptor output_;
  pid_t pid_ = -1;
  bool waited_ = false;
};

/// A shell script inside a new sandbox.
Program in_sandbox(const std::string& script);

/// Runs a shell script inside a new sandbox, expects exit code 0, and returns its output.
std::string output_in_sandbox(const std::string& script);

/// Changes the user and the group of this process from root to nobody.
void become_ordinary_user();

/// Simulates a container that forbids user namespaces: installs the seccomp filter of container runtimes in this
/// process and its children: unshare(), setns(), mount() and clone() with flags for namespaces fail with EPERM,
/// clone3() with ENOSYS. Exits with code 126 if the filter cannot be installed.
inline void refuse_namespaces() {
  constexpr unsigned kNamespaces =
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWCGROUP;
  sock_filter program[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 7, 0, SYS_unshare},
      {BPF_JMP | BPF_JEQ | BPF_K, 6, 0, SYS_setns},
      {BPF_JMP | BPF_JEQ | BPF_K, 5, 0, SYS_mount},
      {BPF_JMP | BPF_JEQ | BPF_K, 5, 0, SYS_clone3},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 2, SYS_clone},
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, args[0])},
      {BPF_JMP | BPF_JSET | BPF_K, 1, 0, kNamespaces},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS},
  };
  sock_fprog filter = {std::size(program), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    _exit(126);
}

}  // namespace plugfest::netns
