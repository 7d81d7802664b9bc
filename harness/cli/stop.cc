#include "harness/cli/stop.h"

#include <csignal>
#include <initializer_list>

namespace plugfest::cli {
namespace {

std::atomic<bool> stopped{false};
std::atomic<int> signal_number{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  signal_number = number;
  stopped = true;
}

}  // namespace

const std::atomic<bool>& stop_on_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
  return stopped;
}

void stop() { stopped = true; }

int stop_signal() { return signal_number; }

}  // namespace plugfest::cli
