// A notification only triggers a comparison of two snapshots of the interface. The next notification therefore makes up
// for lost ones (ENOBUFS).
#include "fabric/roce/verbs/device/port_watch.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "fabric/system/blocked_signals.h"

namespace plugfest::roce::verbs {

PortWatch::PortWatch(int interface_index, OnChange on_change, OnEvent on_event)
    : interface_index_(interface_index),
      on_change_(std::move(on_change)),
      on_event_(std::move(on_event)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      owner_(getpid()) {
  if (!stop_) throw_errno("create an event descriptor");
  if (std::optional<Interface> now = read_nic_interface(interface_index_)) last_ = *std::move(now);
  const BlockedSignals blocked;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "roce-port");
    watch();
  });
}

PortWatch::~PortWatch() {
  if (getpid() == owner_) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  } else {
    // Child after fork(): the thread exists in the parent only, and the child's threads may have its handle by now.
    static_cast<void>(new std::thread(std::move(thread_)));
  }
}

void PortWatch::watch() {
  for (;;) {
    pollfd descriptors[] = {{changes_.fd(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(descriptors, 2, -1) < 0) continue;
    if (descriptors[1].revents != 0) return;
    changes_.take_changes();
    try {
      compare();
    } catch (...) {
      // The interface cannot be read now. The next notification tries again.
    }
  }
}

void PortWatch::compare() {
  const std::uint64_t order = next_snapshot();
  std::optional<Interface> now = read_nic_interface(interface_index_);
  if (!now) {
    now = last_;
    now->order = order;
    now->up = false;
    now->addresses.clear();
  }
  const Interface before = std::exchange(last_, *std::move(now));
  on_change_(last_);
  if (last_.up != before.up) on_event_(last_.up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
  if (last_.addresses != before.addresses) on_event_(IBV_EVENT_GID_CHANGE);
}

}  // namespace plugfest::roce::verbs
