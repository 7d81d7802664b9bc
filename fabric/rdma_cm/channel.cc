#include "fabric/rdma_cm/channel.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <iterator>

#include "fabric/rdma_cm/error.h"

namespace plugfest::rdma_cm {

Channel::Channel() : descriptor_(::eventfd(0, EFD_CLOEXEC)) {
  if (descriptor_ < 0) fail(errno, "eventfd");
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

void Channel::remove(const std::function<bool(const Event&)>& matches, std::deque<Event>& removed) {
  if (events_.empty()) return;
  const auto first = std::stable_partition(events_.begin(), events_.end(), [&](const Event& e) { return !matches(e); });
  std::copy(first, events_.end(), std::back_inserter(removed));
  events_.erase(first, events_.end());
  if (events_.empty()) signal(false);
}

}  // namespace plugfest::rdma_cm
