// Sleeps, wakes, serves.
#include "fabric/roce/engine/service_thread.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include <cerrno>
#include <limits>
#include <system_error>
#include <vector>

#include "fabric/roce/engine/nic_engine.h"

namespace plugfest::roce {

namespace {

constexpr Nanoseconds kPatience = 50'000;
constexpr Nanoseconds kAwake = std::numeric_limits<Nanoseconds>::min();

timespec timespec_of(Nanoseconds duration) {
  return {static_cast<time_t>(duration / 1'000'000'000), static_cast<long>(duration % 1'000'000'000)};
}

}  // namespace

ServiceThread::ServiceThread(NicEngine& nic) : nic_(nic), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) throw std::system_error(errno, std::generic_category(), "eventfd");
  sleeps_until_ = kAwake;
  // Signals are the program's: none may be handled on this thread.
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
  wake();
  thread_.join();
}

void ServiceThread::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

void ServiceThread::see_to(Nanoseconds deadline) {
  if (deadline < sleeps_until_.load()) wake();
}

void ServiceThread::become_child() {
  wake_ = Descriptor();
  thread_.detach();
}

void ServiceThread::run() {
  pthread_setname_np(pthread_self(), "roce-service");
  prctl(PR_SET_TIMERSLACK, 1);  // else 50 µs become 100
  while (!stop_) {
    if (!sleep_on_packets()) {
      stay_away();
      continue;
    }
    const bool waited = !eagerness_.eager() && wait_while_called();
    bool found = false;
    NicEngine::Served served = NicEngine::Served::kNothing;
    while (!stop_ && (served = nic_.serve()) == NicEngine::Served::kPackets) {
      found = true;
      nic_.publish_if_due();
      if (nic_.calls() != calls_seen_) break;
    }
    if (served == NicEngine::Served::kBusy) {
      // Whoever holds the lock that long sends a lot, and polls next.
      eagerness_.served(false, false);
      stay_away();
    } else {
      eagerness_.served(waited, found);
    }
    nic_.publish_if_due();
  }
}

void ServiceThread::stay_away() {
  const timespec patience = timespec_of(kPatience);
  nanosleep(&patience, nullptr);
}

// Somebody polls or posts: stays away until nobody has for a while. False if nobody did.
bool ServiceThread::wait_while_called() {
  bool waited = false;
  for (std::uint64_t calls = nic_.calls(); (calls != calls_seen_ || nic_.busy()) && !stop_; calls = nic_.calls()) {
    calls_seen_ = calls;
    waited = true;
    stay_away();
    nic_.publish_if_due();
  }
  return waited;
}

// Until there may be something to do. False if it cannot be known, since another thread is at it.
bool ServiceThread::sleep_on_packets() {
  std::vector<int> readable, writable;
  if (!nic_.list_descriptors(readable, writable)) return false;
  std::vector<pollfd> waited = {{wake_.get(), POLLIN, 0}};
  for (const int descriptor : readable) waited.push_back({descriptor, POLLIN, 0});
  for (const int descriptor : writable) waited.push_back({descriptor, POLLOUT, 0});
  const Nanoseconds until = nic_.next_deadline();
  sleeps_until_ = until;
  // A timer that was armed before sleeps_until_ was seen is in next_deadline() now.
  if (nic_.next_deadline() < until) {
    sleeps_until_ = kAwake;
    return true;
  }
  if (until == kNever) {
    ppoll(waited.data(), waited.size(), nullptr, nullptr);
  } else {
    const Nanoseconds left = until - now_ns();
    const timespec timeout = timespec_of(left > 0 ? left : 0);
    ppoll(waited.data(), waited.size(), &timeout, nullptr);
  }
  sleeps_until_ = kAwake;
  std::uint64_t drained = 0;
  if ((waited[0].revents & POLLIN) != 0) {
    [[maybe_unused]] const ssize_t count = read(wake_.get(), &drained, sizeof(drained));
  }
  return true;
}

}  // namespace plugfest::roce
