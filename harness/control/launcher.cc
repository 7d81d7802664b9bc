#include "harness/control/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>

#include "fabric/netns/fabric.h"
#include "fabric/netns/worker.h"
#include "fabric/system/file.h"
#include "fabric/system/process.h"

namespace plugfest::control {

bool LocalProcess::has_ended() const { return !reaped() && plugfest::has_ended(pid_); }

bool LocalProcess::freeze() {
  ::kill(pid_, SIGSTOP);
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  if (info.si_code != CLD_STOPPED) return false;
  waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED);
  frozen_ = true;
  return true;
}

void LocalProcess::thaw() {
  ::kill(pid_, SIGCONT);
  frozen_ = false;
}

std::optional<int> LocalProcess::end() {
  if (reaped()) return std::nullopt;
  // SIGKILL does not change the status of a process that has already exited. Processes started by the plugin are in the
  // same group, unless they have left it.
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  reaped_ = true;
  return await_status(pid_);
}

namespace {

// Above every descriptor number of a rank.
constexpr int kFirstCopy = 64;

pid_t spawn(const LaunchRequest& request) {
  std::vector<std::string> argv = request.argv;
  std::vector<std::string> environment = environment_with(request.environment);
  // One descriptor's new number may be another's old number, so all are copied first.
  std::vector<std::pair<Descriptor, int>> copies;
  const auto copy = [&](int fd, int number) {
    copies.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, kFirstCopy), number);
    if (!copies.back().first) throw_errno("copy descriptors for " + argv.at(0));
  };
  copy(request.output_fd, 1);
  copy(request.output_fd, 2);
  for (const auto& [fd, number] : request.descriptors) copy(fd, number);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  int error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  for (const auto& [fd, number] : copies)
    if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, fd.get(), number);
  pid_t pid = -1;
  if (error == 0)
    error = posix_spawn(&pid, argv.at(0).c_str(), &actions, JobAttributes().get(), pointers_to(argv).data(),
                        pointers_to(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw_errno("run " + argv.at(0), error);
  return pid;
}

}  // namespace

pid_t FabricLauncher::launch(const LaunchRequest& request) {
  netns::Command command;
  command.argv = request.argv;
  command.environment = request.environment;
  const Descriptor empty(open("/dev/null", O_RDONLY | O_CLOEXEC));
  command.stdin_fd = empty.get();
  command.stdout_fd = request.output_fd;
  command.stderr_fd = request.output_fd;
  command.new_process_group = true;  // Ctrl-C must reach the controller only
  for (const auto& [fd, number] : request.descriptors) command.descriptors.push_back({fd, number});
  return fabric_.spawn(host_of(request.rank), command);
}

PlainLauncher::PlainLauncher() : starter_(std::make_unique<netns::Worker>()) {}
PlainLauncher::~PlainLauncher() = default;

pid_t PlainLauncher::launch(const LaunchRequest& request) {
  pid_t pid = -1;
  starter_->run([&] { pid = spawn(request); });
  return pid;
}

std::string host_of(const std::string& rank) { return rank.substr(0, rank.rfind('.')); }

std::string rank_program() {
  namespace fs = std::filesystem;
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& candidate : {folder / "plugfest-rank", folder.parent_path() / "bin" / "plugfest-rank"})
    if (fs::exists(candidate)) return candidate.string();
  throw std::runtime_error(
      fmt::format("plugfest-rank is neither in {0} nor in {1}/bin: install the package plugfest or build it",
                  folder.string(), folder.parent_path().string()));
}

}  // namespace plugfest::control
