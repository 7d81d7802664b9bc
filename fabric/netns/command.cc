// Starts processes as posix_spawn does: the child shares the caller's memory until execve. The cost does not depend on
// the caller's size, and the child can report an error in that memory.
#include "fabric/netns/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "fabric/system/blocked_signals.h"
#include "fabric/system/process.h"

// Marks functions that run in the child, whose stack and process the sanitizers do not know.
#define PLUGFEST_UNINSTRUMENTED __attribute__((no_sanitize("address", "thread")))

// ThreadSanitizer replaces clone(), sigaction(), dup2() and close() by functions that record what this process does.
// The child shares this memory and must not write to it, so it calls these functions by their other names or makes the
// system calls itself.
extern "C" int __clone(int (*function)(void*), void* stack, int flags, void* argument, ...) noexcept;         // NOLINT
extern "C" int __sigaction(int number, const struct sigaction* action, struct sigaction* previous) noexcept;  // NOLINT

namespace plugfest::netns {
namespace {

// Commands of hosts run as root, whatever the user's PATH: adds the folders of tc and ethtool.
void add_system_folders(std::vector<std::string>& environment) {
  for (std::string& line : environment) {
    if (!line.starts_with("PATH=")) continue;
    for (const std::string folder : {"/usr/local/sbin", "/usr/sbin", "/sbin"})
      if ((":" + line.substr(5) + ":").find(":" + folder + ":") == std::string::npos) line += ":" + folder;
  }
}

// The files to try for a program's name, in order.
std::vector<std::string> candidates(const std::string& program, const std::vector<std::string>& environment) {
  if (program.find('/') != std::string::npos) return {program};
  std::string_view path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& line : environment)
    if (line.starts_with("PATH=")) path = std::string_view(line).substr(5);
  std::vector<std::string> files;
  for (;;) {
    const std::size_t colon = path.find(':');
    const std::string_view folder = path.substr(0, colon);
    files.push_back(folder.empty() ? program : fmt::format("{}/{}", folder, program));
    if (colon == std::string_view::npos) return files;
    path.remove_prefix(colon + 1);
  }
}

// The child's input, prepared by the parent. The child writes only `moved`, `error` and `failed_step`.
struct Plan {
  std::vector<char*> argv;
  std::vector<char*> environment;
  std::vector<char*> files;
  std::vector<Command::Descriptor> descriptors;  // sorted by number, including 0 to 2
  std::vector<int> moved;                        // space for one temporary number per descriptor
  const char* working_directory = nullptr;
  bool must_change_directory = false;
  bool new_process_group = false;
  std::string_view host_name;
  int network_namespace = -1;
  int mount_namespace = -1;
  pid_t parent = 0;

  int error = 0;
  const char* failed_step = nullptr;
};

// The following functions run in the child: no allocation, no lock, no exception.

PLUGFEST_UNINSTRUMENTED void set_all_signal_handlers(sighandler_t handler) {
  struct sigaction action = {};
  action.sa_handler = handler;
  for (int number = 1; number < NSIG; ++number) __sigaction(number, &action, nullptr);
}

PLUGFEST_UNINSTRUMENTED void close_from(unsigned first, unsigned end) {
  if (first >= end || syscall(SYS_close_range, first, end - 1, 0) == 0) return;
  rlimit limit = {};  // kernels before 5.9, and seccomp filters without the call
  getrlimit(RLIMIT_NOFILE, &limit);
  for (unsigned fd = first; fd < end && fd < limit.rlim_cur; ++fd) syscall(SYS_close, fd);
}

// Gives every descriptor its number and closes all others. A number may be the current number of a descriptor that is
// still needed, so all descriptors are first duplicated to numbers above the highest target.
PLUGFEST_UNINSTRUMENTED bool assign_descriptors(Plan& plan) {
  const int above = plan.descriptors.back().number + 1;
  for (std::size_t i = 0; i < plan.descriptors.size(); ++i) {
    plan.moved[i] = fcntl(plan.descriptors[i].fd, F_DUPFD, above);
    if (plan.moved[i] < 0) return false;
  }
  unsigned next = 0;
  for (std::size_t i = 0; i < plan.descriptors.size(); ++i) {
    const int number = plan.descriptors[i].number;
    if (syscall(SYS_dup3, plan.moved[i], number, 0) < 0) return false;
    close_from(next, static_cast<unsigned>(number));
    next = static_cast<unsigned>(number) + 1;
  }
  close_from(next, ~0u);
  return true;
}

PLUGFEST_UNINSTRUMENTED bool prepare(Plan& plan) {
  plan.failed_step = "process group";
  if (plan.new_process_group) {
    if (setpgid(0, 0) != 0) return false;
    set_all_signal_handlers(SIG_IGN);  // discards a Ctrl-C that was sent to the caller's process group
  }
  set_all_signal_handlers(SIG_DFL);

  plan.failed_step = "host namespaces";
  if (setns(plan.network_namespace, CLONE_NEWNET) != 0 || setns(plan.mount_namespace, CLONE_NEWNS) != 0) return false;

  // The host name only helps people to recognize the host, so an error is ignored.
  if (!plan.host_name.empty() && unshare(CLONE_NEWUTS) == 0) [[maybe_unused]]
    const int ignored = sethostname(plan.host_name.data(), plan.host_name.size());

  // setns() to the mount namespace has changed the current folder to its root.
  plan.failed_step = plan.working_directory;
  if (chdir(plan.working_directory) != 0 && plan.must_change_directory) return false;

  plan.failed_step = "descriptors";
  if (!assign_descriptors(plan)) return false;

  plan.failed_step = "death signal";
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  if (getppid() != plan.parent) _exit(0);  // the parent died before the prctl
  return true;
}

PLUGFEST_UNINSTRUMENTED int child_main(void* argument) {
  Plan& plan = *static_cast<Plan*>(argument);
  if (!prepare(plan)) {
    plan.error = errno;
    _exit(127);
  }
  plan.failed_step = nullptr;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // As in a shell: a file that may not be executed does not end the search, and its error is reported if no other file
  // is found. An inaccessible folder is not reported.
  int error = ENOENT;
  const bool searches = plan.files.size() > 2;
  for (char** file = plan.files.data(); *file != nullptr; ++file) {
    execve(*file, plan.argv.data(), plan.environment.data());
    const int reason = errno;
    if (!searches || (reason != ENOENT && reason != ENOTDIR && access(*file, F_OK) == 0)) error = reason;
    if (reason != ENOENT && reason != ENOTDIR && reason != EACCES) break;
  }
  plan.error = error;
  _exit(127);
}

// The following functions run in the parent.

std::string caller_directory() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::current_path(error);
  return error ? "/" : path.string();
}

// The child's stack, with a guard page below.
class Stack {
 public:
  Stack() : memory_(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    if (mprotect(static_cast<char*>(memory_) + kGuard, kBytes - kGuard, PROT_READ | PROT_WRITE) != 0) {
      munmap(memory_, kBytes);
      throw std::bad_alloc();
    }
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  ~Stack() { munmap(memory_, kBytes); }
  void* top() const { return static_cast<char*>(memory_) + kBytes; }

 private:
  static constexpr std::size_t kBytes = 256 * 1024;
  static constexpr std::size_t kGuard = 64 * 1024;  // at least a page on any architecture
  void* memory_;
};

std::string text_of(int error) { return std::system_category().message(error); }

}  // namespace

pid_t start_process(const Command& command, int network_namespace_fd, int mount_namespace_fd) {
  if (command.argv.empty()) throw std::runtime_error("cannot run a command without a program");
  std::vector<std::string> argv = command.argv;
  std::vector<std::string> environment = environment_with(command.environment);
  add_system_folders(environment);
  std::vector<std::string> files = candidates(command.argv[0], environment);
  const std::string directory = command.working_directory.empty() ? caller_directory() : command.working_directory;

  Plan plan;
  plan.argv = pointers_to(argv);
  plan.environment = pointers_to(environment);
  plan.files = pointers_to(files);
  plan.descriptors = command.descriptors;
  plan.descriptors.push_back({command.stdin_fd, 0});
  plan.descriptors.push_back({command.stdout_fd, 1});
  plan.descriptors.push_back({command.stderr_fd, 2});
  std::sort(plan.descriptors.begin(), plan.descriptors.end(),
            [](const auto& a, const auto& b) { return a.number < b.number; });
  for (std::size_t i = 1; i < plan.descriptors.size(); ++i) {
    if (plan.descriptors[i].number == plan.descriptors[i - 1].number)
      throw std::runtime_error(
          fmt::format("cannot run {}: two descriptors for number {}", command.argv[0], plan.descriptors[i].number));
  }
  plan.moved.resize(plan.descriptors.size());
  plan.working_directory = directory.c_str();
  plan.must_change_directory = !command.working_directory.empty();
  plan.new_process_group = command.new_process_group;
  plan.host_name = command.host_name;
  plan.network_namespace = network_namespace_fd;
  plan.mount_namespace = mount_namespace_fd;
  plan.parent = getpid();

  const Stack stack;
  pid_t child = -1;
  int clone_error = 0;
  {
    // No signal handler of this process may run in the child, which shares its memory.
    const BlockedSignals blocked;
    child = __clone(child_main, stack.top(), CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
    clone_error = errno;
  }

  if (child < 0) throw std::runtime_error(fmt::format("cannot run {}: {}", command.argv[0], text_of(clone_error)));
  if (plan.error != 0) {
    await_exit(child);
    if (plan.failed_step == nullptr)
      throw CannotExecute(fmt::format("cannot run {}: {}", command.argv[0], text_of(plan.error)),
                          plan.error == ENOENT ? 127 : 126);
    throw std::runtime_error(
        fmt::format("cannot run {}: {}: {}", command.argv[0], plan.failed_step, text_of(plan.error)));
  }
  return child;
}

}  // namespace plugfest::netns
