#include "fabric/roce/service_thread.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "fabric/roce/nic.h"
#include "fabric/roce/port/wakeup.h"

namespace plugfest::roce {
namespace {

// Never destroyed, because the process may fork while it exits.
struct Registry {
  std::mutex mutex;
  std::vector<Nic*> nics;
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

void before_fork() { registry().mutex.lock(); }
void after_fork_in_parent() { registry().mutex.unlock(); }
void after_fork_in_child() {
  for (Nic* const nic : registry().nics) nic->on_fork_in_child();
  registry().nics.clear();
  registry().mutex.unlock();
}

// A program may exit without destroying its NICs.
void before_exit() {
  const std::lock_guard lock(registry().mutex);
  for (Nic* const nic : registry().nics) nic->on_exit();
}

}  // namespace

ForkGuard::ForkGuard(Nic& nic) : nic_(nic) {
  static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(registered);
  static const int at_exit = std::atexit(before_exit);
  static_cast<void>(at_exit);
  const std::lock_guard lock(registry().mutex);
  registry().nics.push_back(&nic);
}

ForkGuard::~ForkGuard() {
  const std::lock_guard lock(registry().mutex);
  std::erase(registry().nics, &nic_);
}

namespace {

constexpr long kTakeoverDelayNanoseconds = 50'000;
// The delay doubles up to this limit while the program polls, because each wake-up takes a processor from the program.
constexpr long kMaxDelayNanoseconds = 200'000;

void pause(long nanoseconds = kTakeoverDelayNanoseconds) {
  const timespec delay = {0, nanoseconds};
  nanosleep(&delay, nullptr);
}

}  // namespace

ServiceThread::ServiceThread(Nic& nic, Wakeup& wakeup) : nic_(nic), wakeup_(wakeup) {
  // Block every signal on this thread: the program's own threads handle them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ServiceThread::~ServiceThread() { stop(); }

void ServiceThread::stop() {
  if (!thread_.joinable()) return;
  stop_ = true;
  wakeup_.wake();
  thread_.join();
}

void ServiceThread::detach_in_child() { thread_.detach(); }

void ServiceThread::run() {
  pthread_setname_np(pthread_self(), "roce-service");
  prctl(PR_SET_TIMERSLACK, 1);  // the default slack turns 50 µs into 100 µs
  while (!stop_) {
    if (!wait_for_packets()) {
      pause();
      continue;
    }
    const bool waited = !takeover_.immediate() && wait_while_called();
    bool found = false;
    Nic::Served served = Nic::Served::kNothing;
    while (!stop_ && (served = nic_.serve()) == Nic::Served::kPackets) {
      found = true;
      nic_.publish_if_due();
      if (nic_.calls() != calls_seen_) break;
    }
    if (served == Nic::Served::kBusy) {
      // A thread that holds the lock for long is sending a lot, and will poll next.
      takeover_.served(false, false);
      pause();
    } else {
      takeover_.served(waited, found);
    }
    nic_.publish_if_due();
  }
}

// Waits until the program has neither polled nor posted for 50 µs or longer. False if it did not have to wait.
bool ServiceThread::wait_while_called() {
  bool waited = false;
  long delay = kTakeoverDelayNanoseconds;
  for (std::uint64_t calls = nic_.calls(); (calls != calls_seen_ || nic_.busy()) && !stop_; calls = nic_.calls()) {
    calls_seen_ = calls;
    waited = true;
    pause(delay);
    delay = std::min(2 * delay, kMaxDelayNanoseconds);
    nic_.publish_if_due();
  }
  return waited;
}

// Sleeps until the NIC may have work. False if another thread held the NIC's lock for long.
bool ServiceThread::wait_for_packets() {
  std::vector<int> readable, writable;
  if (!nic_.list_descriptors(readable, writable)) return false;
  wakeup_.sleep(readable, writable, [this] { return nic_.next_deadline(); });
  return true;
}

}  // namespace plugfest::roce
