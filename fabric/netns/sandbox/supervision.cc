#include "fabric/netns/sandbox/supervision.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/system/exit_code.h"
#include "fabric/system/throw_errno.h"

namespace plugfest::netns {
namespace {

bool stops_a_job(int number) { return number == SIGTSTP || number == SIGTTIN || number == SIGTTOU; }

}  // namespace

pid_t fork_or_throw() {
  const pid_t child = fork();
  if (child < 0) throw_errno("cannot create the sandbox: fork");
  return child;
}

ParentDeath::ParentDeath() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("cannot create the sandbox: pipe");
  read_end_ = ends[0];
  write_end_ = ends[1];
}

void ParentDeath::kill_me() const {
  close(write_end_);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pollfd parent = {read_end_, POLLIN, 0};
  if (poll(&parent, 1, 0) != 0) _exit(kKilledBySignal + SIGKILL);
  close(read_end_);
}

void ParentDeath::keep_alive() const { close(read_end_); }

std::optional<int> reap(pid_t main_child) {
  std::optional<int> exit_code;
  int status = 0;
  for (pid_t exited; (exited = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (exited == main_child) exit_code = exit_code_of(status);
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
    // The kernel sends a terminal's Ctrl-C and Ctrl-Z to the whole process group, which includes the child.
    if (number > 0 && info.si_code <= 0) kill(child, number);
    if (stops_a_job(number)) raise(SIGSTOP);
  }
}

}  // namespace plugfest::netns
