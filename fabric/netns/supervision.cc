#include "fabric/netns/supervision.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "fabric/system/file.h"
#include "fabric/system/process.h"

namespace plugfest::netns {
namespace {

// Standard output may be a pipe whose reader waits for end of file.
void detach_standard_streams() {
  const int null_device = open("/dev/null", O_RDWR);
  for (const int stream : {0, 1, 2}) dup2(null_device, stream);
}

}  // namespace

ExitCleanup::ExitCleanup(std::function<void()> function) {
  Pipe pipe = make_pipe();
  process_ = fork();
  if (process_ < 0) throw_errno("fork a process");
  if (process_ == 0) {
    let_finish(getpid());
    setsid();  // no signals from the terminal
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    detach_standard_streams();
    pipe.write_end.close();
    char byte;
    while (read(pipe.read_end.get(), &byte, 1) < 0 && errno == EINTR) continue;
    function();
    _exit(0);
  }
  pipe_ = std::move(pipe.write_end);
}

ExitCleanup::~ExitCleanup() {
  pipe_.close();
  await_exit(process_);
}

namespace {

bool stops_a_job(int number) { return number == SIGTSTP || number == SIGTTIN || number == SIGTTOU; }

// Process ids; 0: a free entry.
using Finishing = std::array<std::atomic<pid_t>, 16>;
static_assert(std::atomic<pid_t>::is_always_lock_free);
Finishing* finishing = nullptr;

bool may_finish(pid_t process) {
  return finishing != nullptr && std::find(finishing->begin(), finishing->end(), process) != finishing->end();
}

std::vector<pid_t> children(pid_t of) {
  std::vector<pid_t> found = all_processes();
  std::erase_if(found, [&](pid_t process) { return process_entry(process).value_or(ProcessEntry{}).parent != of; });
  return found;
}

// Whether the child, or a child of it that runs this program, is stopped or traced.
bool is_stopped(pid_t child) {
  const std::string name = process_entry(getpid()).value_or(ProcessEntry{}).name;
  std::vector<pid_t> processes = children(child);
  processes.push_back(child);
  return std::any_of(processes.begin(), processes.end(), [&](pid_t process) {
    const std::optional<ProcessEntry> entry = process_entry(process);
    return entry && entry->name == name && (entry->state == 'T' || entry->state == 't');
  });
}

}  // namespace

pid_t fork_or_throw() {
  const pid_t child = fork();
  if (child < 0) throw_errno("fork a process for the sandbox");
  return child;
}

ParentDeath::ParentDeath() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("make a pipe for the sandbox");
  read_end_ = ends[0];
  write_end_ = ends[1];
}

void ParentDeath::kill_me() const { signal_me(SIGKILL); }

void ParentDeath::signal_me(int number) const {
  close(write_end_);
  prctl(PR_SET_PDEATHSIG, number);
  pollfd parent = {read_end_, POLLIN, 0};
  if (poll(&parent, 1, 0) != 0) _exit(kKilledBySignal + SIGKILL);
  close(read_end_);
}

void ParentDeath::keep_alive() const { close(read_end_); }

int supervise(pid_t child, const sigset_t& all) {
  constexpr timespec kTimeout = {2, 0};
  bool must_end = false;
  bool killed = false;
  for (;;) {
    siginfo_t info = {};
    const int number = must_end ? sigtimedwait(&all, &info, &kTimeout) : sigwaitinfo(&all, &info);
    if (number == SIGCHLD) {
      if (const std::optional<int> exit_code = reap(child)) return killed ? kKilledWhileStopped : *exit_code;
      continue;
    }
    if (number < 0 && errno == EAGAIN && is_stopped(child)) killed = kill(child, SIGKILL) == 0;
    must_end = must_end || number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
    // The kernel sends a terminal's Ctrl-C and Ctrl-Z to the whole process group, which includes the child.
    if (number > 0 && info.si_code <= 0) kill(child, number);
    if (stops_a_job(number)) raise(SIGSTOP);
  }
}

void end_descendants() {
  for (bool waits = true; waits;) {
    waits = false;
    for (const pid_t child : children(getpid()))
      if (may_finish(child) || kill(child, SIGKILL) == 0) waits = true;
    // The children of a child that exits become children of this process.
    if (waits && waitpid(-1, nullptr, 0) < 0 && errno == ECHILD) return;
  }
}

void let_finish(pid_t process) {
  if (finishing == nullptr) return;
  for (std::atomic<pid_t>& place : *finishing) {
    pid_t free = 0;
    if (place.compare_exchange_strong(free, process)) return;
  }
}

void share_list() {
  void* const memory = mmap(nullptr, sizeof(Finishing), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  finishing = new (memory) Finishing{};
}

}  // namespace plugfest::netns
