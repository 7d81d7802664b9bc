#include "fabric/roce/counter_publisher.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace plugfest::roce {

CounterPublisher::CounterPublisher(const std::filesystem::path& device_folder, NicLock& nic_lock, Wakeup& wakeup)
    : nic_lock_(nic_lock), slot_(device_folder), timer_(wakeup), published_(slot_.counters()) {}

void CounterPublisher::check(Nanoseconds now, bool capture_pending) {
  next_check_ = now + kInterval;
  const bool counted = slot_.shared() && slot_.counters() != published_;
  if ((counted || capture_pending) && !timer_.armed()) timer_.arm(std::max(now, published_at_ + kInterval));
}

void CounterPublisher::publish(Nanoseconds interval, int attempts) {
  const std::lock_guard publishing(publication_mutex_);
  Counters own;
  {
    const std::lock_guard lock(nic_lock_);
    own = slot_.counters();
  }
  CounterSlot::Published result = slot_.publish(interval);
  while (result == CounterSlot::Published::kNotYet && --attempts > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    result = slot_.publish(interval);
  }
  const std::lock_guard lock(nic_lock_);
  published_at_ = now_ns();
  timer_.disarm();
  if (result == CounterSlot::Published::kNotYet)
    timer_.arm(published_at_ + interval);
  else
    published_ = own;
}

}  // namespace plugfest::roce
