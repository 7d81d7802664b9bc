#include "harness/faults/ranks_by_host.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "fabric/system/wait.h"

namespace plugfest::faults {
namespace {

// Waits until all threads of a process have stopped, at most one second. A process that a rule has already stopped
// does not report another stop.
void await_stop(int process) {
  const auto has_changed = [&] {
    siginfo_t info{};
    const int failed = waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(process), &info,
                              WSTOPPED | WEXITED | WNOWAIT | WNOHANG);
    return failed != 0 || info.si_pid != 0;
  };
  wait_until(has_changed, std::chrono::seconds(1));
}

}  // namespace

pid_t RanksByHost::launch(const control::LaunchRequest& request) {
  // Holds the lock, so that no signal is sent between the launch of a rank and its registration.
  const std::lock_guard lock(mutex_);
  const pid_t pid = launcher_.launch(request);
  const std::string host = control::host_of(request.rank);
  Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (process.get() < 0) throw_errno("watch the process of a rank");
  signal(host, 0);  // removes ranks that have exited
  if (frozen_.count(host) != 0) syscall(SYS_pidfd_send_signal, process.get(), SIGSTOP, nullptr, 0);
  of_host_[host].push_back(std::move(process));
  return pid;
}

void RanksByHost::freeze(const std::string& host, bool frozen) {
  const std::lock_guard lock(mutex_);
  if (frozen)
    frozen_.insert(host);
  else
    frozen_.erase(host);
  signal(host, frozen ? SIGSTOP : SIGCONT);
  if (!frozen) return;
  for (const Descriptor& process : of_host_[host]) await_stop(process.get());
}

void RanksByHost::kill(const std::string& host) {
  const std::lock_guard lock(mutex_);
  signal(host, SIGKILL);
}

void RanksByHost::signal(const std::string& host, int number) {
  std::erase_if(of_host_[host], [&](const Descriptor& process) {
    return syscall(SYS_pidfd_send_signal, process.get(), number, nullptr, 0) != 0 && errno == ESRCH;
  });
}

}  // namespace plugfest::faults
