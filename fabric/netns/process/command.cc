// From a command to a running process, in the manner of posix_spawn: the child borrows the caller's memory until it
// executes the program, so it costs the same however large the caller is, and it can leave its error where the caller
// finds it.
#include "fabric/netns/process/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string_view>

// For what runs in the child, on a stack and in a process that the sanitizers know nothing of.
#define PLUGFEST_UNINSTRUMENTED __attribute__((no_sanitize("address", "thread")))

namespace plugfest::netns {
namespace {

// The environment of the new process as NAME=value lines.
std::vector<std::string> new_environment(const Command& command) {
  std::vector<std::string> lines;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) lines.emplace_back(*line);
  for (const auto& [name, value] : command.environment) {
    const std::string start = name + "=";
    std::erase_if(lines, [&](const std::string& line) { return line.starts_with(start); });
    if (value) lines.push_back(start + *value);
  }
  return lines;
}

// The files that a program's name may stand for, in order.
std::vector<std::string> candidates(const std::string& program, const std::vector<std::string>& environment) {
  if (program.find('/') != std::string::npos) return {program};
  std::string_view path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& line : environment) {
    if (line.starts_with("PATH=")) path = std::string_view(line).substr(5);
  }
  std::vector<std::string> files;
  for (;;) {
    const std::size_t colon = path.find(':');
    const std::string_view folder = path.substr(0, colon);
    files.push_back(folder.empty() ? program : fmt::format("{}/{}", folder, program));
    if (colon == std::string_view::npos) return files;
    path.remove_prefix(colon + 1);
  }
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// All that the child needs, ready made; it writes only the last two.
struct Plan {
  std::vector<char*> argv;
  std::vector<char*> environment;
  std::vector<char*> files;
  std::vector<Command::Descriptor> descriptors;  // by ascending number, 0 to 2 among them
  std::vector<int> moved;                        // room for one number each
  const char* working_directory = nullptr;
  bool must_change_directory = false;
  bool new_process_group = false;
  int network_namespace = -1;
  int mount_namespace = -1;
  pid_t parent = 0;

  int error = 0;
  const char* failed_step = nullptr;
};

// In the child from here on. No allocation, no lock, no exception.

PLUGFEST_UNINSTRUMENTED void handle_signals_by(sighandler_t handler) {
  struct sigaction action = {};
  action.sa_handler = handler;
  for (int number = 1; number < NSIG; ++number) sigaction(number, &action, nullptr);
}

// Closes first, first + 1, … up to, not including, `end`.
PLUGFEST_UNINSTRUMENTED void close_from(unsigned first, unsigned end) {
  if (first >= end || syscall(SYS_close_range, first, end - 1, 0) == 0) return;
  rlimit limit = {};  // kernels before 5.9, and filters that do not know the call
  getrlimit(RLIMIT_NOFILE, &limit);
  for (unsigned fd = first; fd < end && fd < limit.rlim_cur; ++fd) close(static_cast<int>(fd));
}

// Gives every descriptor its number and closes the others. A number may be in use by another that is still to be
// placed, so all are first moved out of the way.
PLUGFEST_UNINSTRUMENTED bool place_descriptors(Plan& plan) {
  const int above = plan.descriptors.back().number + 1;
  for (std::size_t i = 0; i < plan.descriptors.size(); ++i) {
    plan.moved[i] = fcntl(plan.descriptors[i].fd, F_DUPFD, above);
    if (plan.moved[i] < 0) return false;
  }
  unsigned next = 0;
  for (std::size_t i = 0; i < plan.descriptors.size(); ++i) {
    const int number = plan.descriptors[i].number;
    if (dup2(plan.moved[i], number) < 0) return false;
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
    handle_signals_by(SIG_IGN);  // forgets a Ctrl-C that came while this was still of the caller's group
  }
  handle_signals_by(SIG_DFL);

  plan.failed_step = "host namespaces";
  if (setns(plan.network_namespace, CLONE_NEWNET) != 0 || setns(plan.mount_namespace, CLONE_NEWNS) != 0) return false;

  // Entering the mount namespace has put us into its root folder.
  plan.failed_step = plan.working_directory;
  if (chdir(plan.working_directory) != 0 && plan.must_change_directory) return false;

  plan.failed_step = "descriptors";
  if (!place_descriptors(plan)) return false;

  plan.failed_step = "death signal";
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  if (getppid() != plan.parent) _exit(0);  // it died before the kernel knew of our wish
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
  // As a shell does: a file without permission does not end the search, but is the reason given if nothing else is
  // found. A closed folder on the way is not.
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

// In the parent again.

std::string caller_directory() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::current_path(error);
  return error ? "/" : path.string();
}

// Memory for the child's stack, with a guard page below.
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
  static constexpr std::size_t kGuard = 64 * 1024;  // a page of any architecture
  void* memory_;
};

std::string text_of(int error) { return std::system_category().message(error); }

}  // namespace

pid_t start_process(const Command& command, int network_namespace_fd, int mount_namespace_fd) {
  if (command.argv.empty()) throw std::runtime_error("cannot run a command without a program");
  std::vector<std::string> argv = command.argv;
  std::vector<std::string> environment = new_environment(command);
  std::vector<std::string> files = candidates(command.argv[0], environment);
  const std::string directory = command.working_directory.empty() ? caller_directory() : command.working_directory;

  Plan plan;
  plan.argv = pointers(argv);
  plan.environment = pointers(environment);
  plan.files = pointers(files);
  plan.descriptors = command.descriptors;
  plan.descriptors.push_back({command.stdin_fd, 0});
  plan.descriptors.push_back({command.stdout_fd, 1});
  plan.descriptors.push_back({command.stderr_fd, 2});
  std::sort(plan.descriptors.begin(), plan.descriptors.end(),
            [](const auto& a, const auto& b) { return a.number < b.number; });
  for (std::size_t i = 1; i < plan.descriptors.size(); ++i) {
    if (plan.descriptors[i].number == plan.descriptors[i - 1].number) {
      throw std::runtime_error(fmt::format("cannot run {}: two descriptors are to have number {}", command.argv[0],
                                           plan.descriptors[i].number));
    }
  }
  plan.moved.resize(plan.descriptors.size());
  plan.working_directory = directory.c_str();
  plan.must_change_directory = !command.working_directory.empty();
  plan.new_process_group = command.new_process_group;
  plan.network_namespace = network_namespace_fd;
  plan.mount_namespace = mount_namespace_fd;
  plan.parent = getpid();

  // No handler of ours may run in the child, which has our memory.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const Stack stack;
  const pid_t child = clone(child_main, stack.top(), CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
  const int clone_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  if (child < 0) throw std::runtime_error(fmt::format("cannot run {}: {}", command.argv[0], text_of(clone_error)));
  if (plan.error != 0) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
    const std::string step = plan.failed_step != nullptr ? fmt::format("{}: ", plan.failed_step) : "";
    throw std::runtime_error(fmt::format("cannot run {}: {}{}", command.argv[0], step, text_of(plan.error)));
  }
  return child;
}

}  // namespace plugfest::netns
