#include "fabric/netns/sandbox/supervision.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace plugfest::netns {
namespace {

[[noreturn]] void throw_failed(const char* what) {
  throw std::runtime_error(fmt::format("cannot make the sandbox: {}: {}", what, std::strerror(errno)));
}

int exit_code_of(int status) { return WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status); }

bool stops_a_job(int number) { return number == SIGTSTP || number == SIGTTIN || number == SIGTTOU; }

}  // namespace

pid_t fork_or_throw() {
  const pid_t child = fork();
  if (child < 0) throw_failed("fork");
  return child;
}

Lifeline::Lifeline() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_failed("pipe");
  read_end_ = ends[0];
  write_end_ = ends[1];
}

void Lifeline::die_with_parent() const {
  close(write_end_);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pollfd parent = {read_end_, POLLIN, 0};
  if (poll(&parent, 1, 0) != 0) _exit(kSignalled + SIGKILL);
  close(read_end_);
}

void Lifeline::hold() const { close(read_end_); }

std::optional<int> reap(pid_t main_child) {
  std::optional<int> exit_code;
  int status = 0;
  for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (ended == main_child) exit_code = exit_code_of(status);
  }
  return exit_code;
}

int supervise(pid_t child, const sigset_t& all) {
  for (;;) {
    siginfo_t info = {};
    const int number = sigwaitinfo(&all, &info);
    if (number == SIGCHLD) {
      if (const std::optional<int> exit_code = reap(child)) return *exit_code;
      continue;
    }
    // What the kernel sends (a terminal's Ctrl-C, its Ctrl-Z) goes to the whole process group and so to the program
    // itself.
    if (number > 0 && info.si_code <= 0) kill(child, number);
    if (stops_a_job(number)) raise(SIGSTOP);
  }
}

}  // namespace plugfest::netns
