#include "fabric/rdma_cm/channel.h"

#include <sys/eventfd.h>

#include <algorithm>

namespace plugfest::rdma_cm {

Channel::Channel() : descriptor_(::eventfd(0, EFD_CLOEXEC)) {
  if (descriptor_ < 0) throw_errno("create an event descriptor");
}

// The counter of the eventfd is 1 while there are events. Neither call blocks: only this class changes the counter, and
// its calls alternate.
void Channel::signal(bool readable) {
  eventfd_t value = 1;
  if (readable)
    ::eventfd_write(descriptor_, value);
  else
    ::eventfd_read(descriptor_, &value);
}

void Channel::push(const Event& event) {
  events_.push_back(event);
  if (events_.size() == 1) signal(true);
}

Event Channel::pop() {
  const Event event = events_.front();
  events_.pop_front();
  if (events_.empty()) signal(false);
  return event;
}

std::deque<Event> Channel::remove_events_of(std::uint32_t owner) {
  if (events_.empty()) return {};
  const auto first =
      std::stable_partition(events_.begin(), events_.end(), [&](const Event& event) { return event.owner != owner; });
  std::deque<Event> removed(first, events_.end());
  events_.erase(first, events_.end());
  if (events_.empty()) signal(false);
  return removed;
}

}  // namespace plugfest::rdma_cm
