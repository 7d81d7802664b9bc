// Facts about this process, its environment, its timers.
#include <dirent.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>
#include <system_error>

#include "harness/rank/calls/dispatch.h"

namespace plugfest::rank {

namespace {

std::int32_t entries(const char* folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder), closedir);
  if (!open) throw std::system_error(errno, std::generic_category(), folder);
  std::int32_t count = 0;
  while (const dirent* entry = readdir(open.get())) count += entry->d_name[0] != '.' ? 1 : 0;
  return count;
}

/// A number in kB from /proc/self/status, in bytes.
std::uint64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key + ":")) return std::stoull(line.substr(key.size() + 1)) * 1024;
  }
  return 0;
}

std::vector<std::string> executable_files() {
  std::vector<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, access, offset, device, inode, path;
    words >> range >> access >> offset >> device >> inode;
    std::getline(words >> std::ws, path);
    if (access.find('x') == std::string::npos || !path.starts_with('/')) continue;
    if (std::find(files.begin(), files.end(), path) == files.end()) files.push_back(path);
  }
  return files;
}

void ignore_signal(int) {}

}  // namespace

ProcessAnswer execute(const ProcessFacts&) {
  ProcessAnswer facts;
  facts.threads = entries("/proc/self/task");
  facts.file_descriptors = entries("/proc/self/fd") - 1;  // without the descriptor of this folder
  facts.resident_bytes = status_bytes("VmRSS");
  facts.locked_bytes = status_bytes("VmLck");
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  facts.cpu_ns = std::int64_t{cpu.tv_sec} * 1'000'000'000 + cpu.tv_nsec;
  facts.libraries = executable_files();
  return facts;
}

Nothing execute(const SetEnvironment& request) {
  const int result =
      request.value ? setenv(request.variable.c_str(), request.value->c_str(), 1) : unsetenv(request.variable.c_str());
  if (result != 0) throw std::system_error(errno, std::generic_category(), "setenv " + request.variable);
  return {};
}

Nothing execute(const InterruptEvery& request) {
  thread_local timer_t timer{};
  thread_local bool armed = false;
  if (armed) timer_delete(timer);
  armed = false;
  if (request.period_us == 0) return {};
  // Without SA_RESTART, system calls of the plugin fail with EINTR.
  struct sigaction action {};
  action.sa_handler = ignore_signal;
  sigaction(SIGALRM, &action, nullptr);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGALRM;
#ifdef sigev_notify_thread_id
  event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
#else
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
#endif
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) {
    throw std::system_error(errno, std::generic_category(), "timer_create");
  }
  armed = true;
  itimerspec period{};
  period.it_interval.tv_sec = static_cast<time_t>(request.period_us / 1'000'000);
  period.it_interval.tv_nsec = static_cast<long>(request.period_us % 1'000'000 * 1000);
  period.it_value = period.it_interval;
  timer_settime(timer, 0, &period, nullptr);
  return {};
}

}  // namespace plugfest::rank
