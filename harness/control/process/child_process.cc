#include "harness/control/process/child_process.h"

#include <signal.h>
#include <sys/wait.h>

#include <cerrno>

namespace plugfest::control {

bool LocalProcess::has_ended() const {
  siginfo_t info{};
  return alive() && waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

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
  if (!alive()) return std::nullopt;
  // SIGKILL does not change the status of a process that has already exited. Processes that the plugin has started are
  // in the same group, unless they have left it.
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  return status;
}

}  // namespace plugfest::control
