#include "fabric/roce/qp/completion_queue.h"

#include <algorithm>
#include <cerrno>

namespace plugfest::roce {

CompletionQueue::CompletionQueue(const NicContext& nic, int capacity, CompletionQueueEvents events, bool timestamps)
    : nic_(nic),
      events_(events),
      timestamps_(timestamps),
      ring_(make_lazy_array<TimedCompletion>(static_cast<std::size_t>(std::max(1, capacity)))),
      capacity_(static_cast<std::size_t>(std::max(1, capacity))) {}

CompletionQueue::~CompletionQueue() = default;

template <typename Store>
int CompletionQueue::take(int count, Store store) {
  if (count_.load(std::memory_order_acquire) == 0) return 0;
  const std::lock_guard lock(mutex_);
  const std::uint64_t waiting = count_.load(std::memory_order_relaxed);
  const auto taken = std::min(waiting, static_cast<std::uint64_t>(std::max(0, count)));
  for (std::uint64_t i = 0; i < taken; ++i) store(i, ring_[(first_ + i) % capacity_]);
  first_ += taken;
  count_.store(waiting - taken, std::memory_order_release);
  return static_cast<int>(taken);
}

template <typename Store>
int CompletionQueue::poll_with(int count, Store store) {
  if (nic_.lock.in_child()) return -1;
  const int waiting = take(count, store);
  if (waiting != 0) return waiting;
  if (overflowed_.load(std::memory_order_relaxed)) return -1;
  nic_.operations.poll();
  return take(count, store);
}

int CompletionQueue::poll(int count, ibv_wc* completions) {
  return poll_with(count,
                   [&](std::uint64_t index, const TimedCompletion& taken) { completions[index] = taken.completion; });
}

int CompletionQueue::poll_one(TimedCompletion& result) {
  return poll_with(1, [&](std::uint64_t, const TimedCompletion& taken) { result = taken; });
}

int CompletionQueue::request_notify(bool solicited_only) {
  if (nic_.lock.in_child()) return EIO;
  events_requested_.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  // A request for solicited completions does not replace one for all completions.
  if (!solicited_only)
    armed_ = Armed::kAny;
  else if (armed_ == Armed::kNo)
    armed_ = Armed::kSolicited;
  if (first_ + count_.load(std::memory_order_relaxed) > std::max(announced_, first_)) fire();
  return 0;
}

int CompletionQueue::resize(int capacity) {
  if (nic_.lock.in_child()) return EIO;
  const std::lock_guard lock(mutex_);
  const std::uint64_t waiting = count_.load(std::memory_order_relaxed);
  if (capacity < 1 || static_cast<std::uint64_t>(capacity) < waiting) return EINVAL;
  auto ring = make_lazy_array<TimedCompletion>(static_cast<std::size_t>(capacity));
  for (std::uint64_t i = 0; i < waiting; ++i) ring[i] = ring_[(first_ + i) % capacity_];
  ring_ = std::move(ring);
  capacity_ = static_cast<std::size_t>(capacity);
  announced_ -= std::min(announced_, first_);
  first_ = 0;
  return 0;
}

int CompletionQueue::capacity() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(capacity_);
}

void CompletionQueue::push(const ibv_wc& completion, bool solicited) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t waiting = count_.load(std::memory_order_relaxed);
  if (waiting == capacity_) {
    if (!overflowed_.exchange(true) && events_.async != nullptr) events_.async(events_.context, IBV_EVENT_CQ_ERR);
    return;
  }
  ring_[(first_ + waiting) % capacity_] = {completion, timestamps_ ? now_ns() : 0};
  count_.store(waiting + 1, std::memory_order_release);
  const bool fires =
      armed_ == Armed::kAny || (armed_ == Armed::kSolicited && (solicited || completion.status != IBV_WC_SUCCESS));
  if (fires) fire();
}

void CompletionQueue::fire() {
  armed_ = Armed::kNo;
  announced_ = std::max(announced_, first_) + 1;
  if (events_.completion != nullptr) events_.completion(events_.context);
}

void CompletionQueue::remove_completions(std::uint32_t queue_pair_number) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t waiting = count_.load(std::memory_order_relaxed);
  std::uint64_t kept = 0;
  for (std::uint64_t i = 0; i < waiting; ++i) {
    const TimedCompletion waiting_one = ring_[(first_ + i) % capacity_];
    if (waiting_one.completion.qp_num != queue_pair_number) ring_[(first_ + kept++) % capacity_] = waiting_one;
  }
  count_.store(kept, std::memory_order_release);
  announced_ = 0;  // an extra event does no harm, a missing one blocks the program
}

}  // namespace plugfest::roce
