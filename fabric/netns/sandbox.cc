#include "fabric/netns/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "fabric/netns/namespace_restriction.h"
#include "fabric/netns/supervision.h"
#include "fabric/system/blocked_signals.h"
#include "fabric/system/process.h"

namespace plugfest::netns {
namespace {

[[noreturn]] void throw_forbidden(SandboxStep step, int error, const NamespaceLimits& limits) {
  throw NamespacesForbidden(explain_restriction(step, error, limits));
}

void require_one_thread() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Threads:") && std::stoi(line.substr(8)) > 1)
      throw std::runtime_error("cannot create the sandbox: the program has more than one thread");
}

// Whether the process can create namespaces and interfaces without its own user namespace.
bool has_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  constexpr unsigned kNeeded = 1u << CAP_SYS_ADMIN | 1u << CAP_NET_ADMIN;
  return (data[0].effective & kNeeded) == kNeeded;
}

// Writes to a file of /proc in one call, as the kernel requires. Returns an errno.
int write_file(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const ssize_t written = write(fd, text.data(), text.size());
  const int error = written < 0 ? errno : written == static_cast<ssize_t>(text.size()) ? 0 : EIO;
  close(fd);
  return error;
}

// Moves the caller to a new user namespace in which it is root.
void enter_user_namespace(const NamespaceLimits& limits) {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWUSER) != 0) throw_forbidden(SandboxStep::kUserNamespace, errno, limits);
  // The kernel accepts the group map only with setgroups disabled: dropping a group must not grant access to files that
  // deny access to the group.
  int error = write_file("/proc/self/setgroups", "deny");
  if (error == ENOENT) error = 0;  // kernels before 3.19
  if (error == 0) error = write_file("/proc/self/uid_map", fmt::format("0 {} 1", user));
  if (error == 0) error = write_file("/proc/self/gid_map", fmt::format("0 {} 1", group));
  if (error != 0) throw_forbidden(SandboxStep::kIdentityMap, error, limits);
}

void enter_namespaces(bool user_namespace, int flags) {
  const NamespaceLimits limits = NamespaceLimits::read();  // inside, the user id would be 0
  if (user_namespace) enter_user_namespace(limits);
  if (unshare(flags) != 0) throw_forbidden(SandboxStep::kNamespaces, errno, limits);
  // Mounts must not propagate between the sandbox and the machine.
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    throw_forbidden(SandboxStep::kNamespaces, errno, limits);
}

bool mount_proc() { return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0; }

// Whether /proc can be mounted in a new process namespace. A container that hides parts of /proc refuses the mount. A
// child process tries it, because a process cannot return from a process namespace.
bool can_mount_proc(bool user_namespace) {
  const pid_t probe = fork_or_throw();
  if (probe == 0) {
    try {
      enter_namespaces(user_namespace, CLONE_NEWNS | CLONE_NEWPID);
      const pid_t first = fork_or_throw();
      if (first == 0) _exit(mount_proc() ? 0 : 1);
      _exit(await_exit(first) == 0 ? 0 : 1);
    } catch (const std::runtime_error&) {
      _exit(0);  // the caller will fail in the same way and report the reason
    }
  }
  return await_exit(probe) == 0;
}

void set_loopback_up() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) throw_errno("open a socket in the sandbox");
  ifreq request = {};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  const int result = ioctl(fd, SIOCSIFFLAGS, &request);
  close(fd);
  if (result != 0) throw_errno("set the sandbox's loopback interface up");
}

// Process 1, or the process that replaces it: forwards signals of the outside process, reaps orphans, exits with the
// program. `outside`: the parent's id, which is 0 if the parent is outside this namespace.
[[noreturn]] void run_process_one(pid_t program, const sigset_t& all, pid_t outside) {
  // Leaves the terminal's process group: a signal for the group reaches the program directly and must not be forwarded.
  setsid();
  for (;;) {
    siginfo_t info = {};
    const int number = sigwaitinfo(&all, &info);
    std::optional<int> exit_code;
    if (number == SIGCHLD) exit_code = reap(program);
    if (getppid() != outside) exit_code = kKilledBySignal + SIGKILL;
    if (exit_code) {
      if (outside != 0) end_descendants();  // else the kernel ends them with the process namespace
      _exit(*exit_code);
    }
    if (number > 0 && info.si_code <= 0 && info.si_pid == outside) kill(program, number);
  }
}

// Forks. Returns nullopt in the child, which ends with its parent, and the child's exit code in the parent. `all`:
// every signal, blocked in the caller.
std::optional<int> fork_supervised(const sigset_t& all) {
  const ParentDeath parent_death;
  const pid_t child = fork_or_throw();
  if (child != 0) {
    parent_death.keep_alive();
    return supervise(child, all);
  }
  parent_death.kill_me();
  return std::nullopt;
}

// The three processes of contain_processes(). `all`: every signal, blocked in the caller.
std::optional<int> fork_contained(const sigset_t& all) {
  constexpr int kParentDied = SIGURG;  // sent once, and by default ignored
  share_list();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t outside = getpid();
  const ParentDeath outside_death;
  const pid_t middle = fork_or_throw();
  if (middle != 0) {
    outside_death.keep_alive();
    const int exit_code = supervise(middle, all);
    end_descendants();
    return exit_code;
  }
  outside_death.signal_me(kParentDied);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const ParentDeath middle_death;
  const pid_t program = fork_or_throw();
  if (program != 0) {
    middle_death.keep_alive();
    run_process_one(program, all, outside);
  }
  middle_death.kill_me();
  return std::nullopt;
}

// Blocks all signals while the process forks, until each side has its role.
class ForkSignals {
 public:
  ForkSignals() {
    require_one_thread();
    std::fflush(nullptr);  // otherwise both processes would write the buffered output
    // With an inherited SIG_IGN the kernel would discard the exit status of children.
    signal(SIGCHLD, SIG_DFL);
    sigfillset(&all_);
  }
  const sigset_t& all() const { return all_; }

 private:
  const BlockedSignals blocked_;
  sigset_t all_;
};

bool is_current(const char* kind, const Descriptor& fd) {
  struct stat current = {};
  struct stat other = {};
  return stat(fmt::format("/proc/self/ns/{}", kind).c_str(), &current) == 0 && fstat(fd.get(), &other) == 0 &&
         current.st_ino == other.st_ino && current.st_dev == other.st_dev;
}

void join(const Descriptor& fd, int kind) {
  if (setns(fd.get(), kind) != 0) throw_errno("join the namespaces of a fabric");
}

}  // namespace

std::optional<int> enter_sandbox() {
  const ForkSignals signals;
  const bool user_namespace = !has_capabilities();
  const bool process_namespace = can_mount_proc(user_namespace);
  enter_namespaces(user_namespace, CLONE_NEWNS | CLONE_NEWNET | (process_namespace ? CLONE_NEWPID : 0));
  set_loopback_up();
  if (!process_namespace) return fork_contained(signals.all());

  if (const std::optional<int> exit_code = fork_supervised(signals.all())) return exit_code;
  if (!mount_proc()) throw_errno("mount /proc in the sandbox");
  const pid_t program = fork_or_throw();
  if (program != 0) run_process_one(program, signals.all(), getppid());
  return std::nullopt;
}

std::optional<int> contain_processes() {
  const ForkSignals signals;
  return fork_contained(signals.all());
}

SandboxNamespaces current_sandbox() {
  const auto open_namespace = [](const char* kind) {
    Descriptor fd(open(fmt::format("/proc/self/ns/{}", kind).c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) throw_errno(fmt::format("open the sandbox's {} namespace", kind));
    return fd;
  };
  return {open_namespace("user"), open_namespace("pid"), open_namespace("net"), open_namespace("mnt")};
}

std::optional<int> join_sandbox(const SandboxNamespaces& sandbox) {
  const ForkSignals signals;
  // A sandbox may share the user or process namespace of the caller. The kernel refuses to enter such a namespace
  // again.
  if (!is_current("user", sandbox.user)) join(sandbox.user, CLONE_NEWUSER);
  if (!is_current("pid", sandbox.processes)) join(sandbox.processes, CLONE_NEWPID);

  if (const std::optional<int> exit_code = fork_supervised(signals.all())) return exit_code;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::current_path(error);
  join(sandbox.network, CLONE_NEWNET);
  join(sandbox.mounts, CLONE_NEWNS);  // changes the current folder to the root
  if (!error) std::filesystem::current_path(folder, error);
  return std::nullopt;
}

}  // namespace plugfest::netns
