#include "fabric/roce/service_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "fabric/roce/port/wakeup.h"
#include "fabric/system/blocked_signals.h"

namespace plugfest::roce {
namespace {

constexpr long kTakeoverDelayNanoseconds = 50'000;
// The delay doubles up to this limit while the program polls, because each wake-up takes a processor from the program.
constexpr long kMaxDelayNanoseconds = 200'000;

void pause(long nanoseconds = kTakeoverDelayNanoseconds) {
  const timespec delay = {0, nanoseconds};
  nanosleep(&delay, nullptr);
}

}  // namespace

ServiceThread::ServiceThread(ServiceWork& work, Wakeup& wakeup) : work_(work), wakeup_(wakeup) {
  // The faults of fabric/system/fault_guard.h are handled on the thread.
  const BlockedSignals blocked({SIGSEGV, SIGBUS});
  thread_ = std::thread([this] { run(); });
}

ServiceThread::~ServiceThread() { stop(); }

void ServiceThread::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  wakeup_.wake();
  thread_.join();
}

void ServiceThread::detach_in_child() {
  if (thread_.joinable()) thread_.detach();
}

void ServiceThread::run() {
  pthread_setname_np(pthread_self(), "roce-service");
  prctl(PR_SET_TIMERSLACK, 1);  // the default slack turns 50 µs into 100 µs
  bool reported = false;
  while (!stop_) {
    try {
      serve();
    } catch (const std::exception& error) {
      // In most cases memory or descriptors are used up. What was not served now is lost like a packet, and the peer
      // repeats it.
      if (!std::exchange(reported, true)) std::fprintf(stderr, "plugfest: NIC: packets are lost: %s\n", error.what());
      pause(kMaxDelayNanoseconds);
    }
  }
}

void ServiceThread::serve() {
  if (!wait_for_packets()) return pause();
  const bool waited = !takeover_.immediate() && wait_while_called();
  bool found = false;
  ServiceWork::Served served = ServiceWork::Served::kNothing;
  while (!stop_ && (served = work_.serve()) == ServiceWork::Served::kPackets) {
    found = true;
    work_.publish_if_due();
    if (work_.calls() != calls_seen_) break;
  }
  if (served == ServiceWork::Served::kBusy) {
    // A thread that holds the lock for long is sending a lot, and will poll next.
    takeover_.served(false, false, now_ns());
    pause();
  } else {
    takeover_.served(waited, found, now_ns());
  }
  work_.publish_if_due();
}

// Waits until the program has neither polled nor posted for 50 µs or longer. False if it did not have to wait.
bool ServiceThread::wait_while_called() {
  bool waited = false;
  long delay = kTakeoverDelayNanoseconds;
  for (std::uint64_t calls = work_.calls(); (calls != calls_seen_ || work_.busy()) && !stop_; calls = work_.calls()) {
    calls_seen_ = calls;
    waited = true;
    pause(delay);
    delay = std::min(2 * delay, kMaxDelayNanoseconds);
    work_.publish_if_due();
  }
  return waited;
}

// Sleeps until the NIC may have work. False if another thread held the NIC's lock for long.
bool ServiceThread::wait_for_packets() {
  std::vector<int> readable, writable;
  if (!work_.list_descriptors(readable, writable)) return false;
  wakeup_.sleep(readable, writable, [this] { return work_.next_deadline(); });
  return true;
}

}  // namespace plugfest::roce
