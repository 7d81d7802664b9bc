#include "harness/cli/stop.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "fabric/netns/supervision.h"
#include "fabric/system/process.h"

namespace plugfest::cli {
namespace {

std::atomic<bool> stopped{false};
std::atomic<int> signal_number{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

int event_fd = -1;

void on_signal(int number) {
  const int saved = errno;
  signal_number = number;
  stopped = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd, &one, sizeof(one));
  errno = saved;
}

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  if (event_fd < 0) event_fd = eventfd(0, EFD_CLOEXEC);
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
  return stopped;
}

int stop_fd() { return event_fd; }

int stop_signal() { return signal_number; }

int exit_code_unless_stopped(int exit_code) { return signal_number == 0 ? exit_code : kKilledBySignal + signal_number; }

void protect_from_plugins() {
  for (const int number : {SIGPIPE, SIGIO}) std::signal(number, SIG_IGN);
#ifndef PLUGFEST_SANITIZED  // LeakSanitizer traces its own process
  prctl(PR_SET_DUMPABLE, 0);
#endif
}

int explain_end(int exit_code, const std::string& plugin) {
  if (exit_code == netns::kKilledWhileStopped) {
    fmt::print(
        stderr,
        "plugfest: the process that runs the rules was stopped, by the plugin{} or another process: it was killed "
        "2 s after the signal, and its results are lost\n",
        plugin.empty() ? "" : " " + plugin);
    return 2;
  }
  const int signal = exit_code - kKilledBySignal;
  if (signal != SIGKILL && signal != SIGSEGV && signal != SIGBUS && signal != SIGABRT) return exit_code;
  fmt::print(stderr, "plugfest: the process that runs the rules was ended by {}, and its results are lost: {}\n",
             signal_name(signal),
             signal == SIGKILL ? "the plugin, another process or the kernel (out of memory: see dmesg) has killed it"
                               : "a fault in plugfest: please report it");
  return 2;
}

}  // namespace plugfest::cli
