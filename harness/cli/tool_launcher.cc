#include "harness/cli/tool_launcher.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "fabric/system/process.h"
#include "fabric/system/text.h"

namespace plugfest::cli {
namespace {

bool is_traced(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/status", process));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("TracerPid:")) return line.find_first_of("123456789") != std::string::npos;
  return false;
}

// Starts a shell command as a separate job, so that Ctrl-C reaches only the command.
pid_t start_job(const std::string& command) {
  std::string shell = "sh", option = "-c", text = command;
  char* const argv[] = {shell.data(), option.data(), text.data(), nullptr};
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/bin/sh", nullptr, JobAttributes().get(), argv, environ);
  if (error != 0) throw std::runtime_error(fmt::format("--wrap: cannot run {}: {}", command, std::strerror(error)));
  return pid;
}

// Gives the terminal, if any, to a process group. A background group may do that with SIGTTOU blocked.
void give_terminal(pid_t group) {
  sigset_t stop, before;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTTOU);
  pthread_sigmask(SIG_BLOCK, &stop, &before);
  tcsetpgrp(STDIN_FILENO, group);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// The kernel has no event for a process that becomes traced.
constexpr std::chrono::milliseconds kPollInterval{2};

}  // namespace

bool attaches_to_rank(const std::string& command) { return command.find("{pid}") != std::string::npos; }

void require_runnable(const std::string& command) {
  const std::string trial = replaced(command, "{rank}", "rank") + " true";
  const int status = std::system(fmt::format("exec </dev/null >/dev/null 2>&1; exec {}", trial).c_str());
  if (status == 0) return;
  throw std::runtime_error(
      fmt::format("--wrap: {} ended with exit code {}: run it to see why", trial, exit_code_of(status)));
}

ToolLauncher::ToolLauncher(control::Launcher& launcher, std::string command)
    : launcher_(launcher), command_(std::move(command)) {}

ToolLauncher::~ToolLauncher() {
  for (std::thread& thread : waiting_) thread.join();
}

pid_t ToolLauncher::launch(const control::LaunchRequest& request) {
  if (command_.empty()) return launcher_.launch(request);
  if (attaches_to_rank(command_)) {
    const pid_t pid = launcher_.launch(request);
    const bool for_every_rank = command_.find("{rank}") != std::string::npos;
    if (!attached_.exchange(true) || for_every_rank) attach(request.rank, pid);
    return pid;
  }
  control::LaunchRequest wrapped = request;
  const std::string script = fmt::format("exec {} \"$@\"", replaced(command_, "{rank}", request.rank));
  wrapped.argv = {"/bin/sh", "-c", script, "sh"};
  wrapped.argv.insert(wrapped.argv.end(), request.argv.begin(), request.argv.end());
  wrapped.output_fd = STDERR_FILENO;
  return launcher_.launch(wrapped);
}

void ToolLauncher::attach(const std::string& rank, pid_t pid) {
  const pid_t job = start_job(replaced(replaced(command_, "{rank}", rank), "{pid}", fmt::to_string(pid)));
  const pid_t terminal_before = tcgetpgrp(STDIN_FILENO);
  give_terminal(job);
  kill(-job, SIGCONT);  // it may have stopped before it had the terminal
  while (!is_traced(pid) && !has_ended(job)) std::this_thread::sleep_for(kPollInterval);
  std::thread waits([job, terminal_before] {
    await_status(job);
    give_terminal(terminal_before);
  });
  const std::lock_guard lock(waiting_mutex_);
  waiting_.push_back(std::move(waits));
}

}  // namespace plugfest::cli
