// Sleeps in ppoll(2) and wakes by an eventfd(2).
#include "fabric/roce/port/wakeup.h"

#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace plugfest::roce {

Wakeup::Wakeup() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) throw_errno("create an event descriptor");
}

// Not write(), which is a cancellation point: threads of the program call this with the NIC's lock held.
void Wakeup::wake() {
  const std::uint64_t increment = 1;
  [[maybe_unused]] const long written = syscall(SYS_write, event_.get(), &increment, sizeof(increment));
}

void Wakeup::sleep(const std::vector<int>& readable, const std::vector<int>& writable,
                   const std::function<Nanoseconds()>& deadline) {
  std::vector<pollfd> polled = {{event_.get(), POLLIN, 0}};
  for (const int descriptor : readable) polled.push_back({descriptor, POLLIN, 0});
  for (const int descriptor : writable) polled.push_back({descriptor, POLLOUT, 0});
  const Nanoseconds until = deadline();
  sleeps_until_ = until;
  // A deadline that was armed before sleeps_until_ was set is visible in deadline() now.
  if (deadline() < until) {
    sleeps_until_ = kAwake;
    return;
  }
  if (until == kNever) {
    ppoll(polled.data(), polled.size(), nullptr, nullptr);
  } else {
    constexpr Nanoseconds kSecond = 1'000'000'000;
    const Nanoseconds left = std::max<Nanoseconds>(0, until - now_ns());
    const timespec timeout = {static_cast<time_t>(left / kSecond), static_cast<long>(left % kSecond)};
    ppoll(polled.data(), polled.size(), &timeout, nullptr);
  }
  sleeps_until_ = kAwake;
  if ((polled[0].revents & POLLIN) == 0) return;
  std::uint64_t events = 0;
  [[maybe_unused]] const ssize_t count = read(event_.get(), &events, sizeof(events));
}

}  // namespace plugfest::roce
