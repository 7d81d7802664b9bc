#include "fabric/roce/qp/scheduler.h"

#include <algorithm>
#include <utility>

#include "fabric/roce/qp/queue_pair.h"

namespace plugfest::roce {

void Scheduler::schedule(QueuePair& queue_pair) {
  SchedulerEntry& entry = queue_pair.scheduler_entry();
  if (entry.scheduled_) return;
  entry.scheduled_ = true;
  scheduled_.push_back(&queue_pair);
}

void Scheduler::delay_acknowledgement(QueuePair& queue_pair, Nanoseconds now) {
  delayed_.push_back(&queue_pair);
  if (delayed_.size() == 1) delayed_timer_.arm(now + kMaxDelay);
}

void Scheduler::wait_for_room(QueuePair& queue_pair) {
  if (std::find(blocked_.begin(), blocked_.end(), &queue_pair) != blocked_.end()) return;
  blocked_.push_back(&queue_pair);
  wakeup_.wake();
}

void Scheduler::call_at(QueuePair& queue_pair, Nanoseconds deadline) {
  if (deadline == kNever) return;
  if (!std::exchange(queue_pair.scheduler_entry().timed_, true)) timed_.push_back(&queue_pair);
  timer_.arm(deadline);
}

void Scheduler::unschedule(QueuePair& queue_pair) {
  SchedulerEntry& entry = queue_pair.scheduler_entry();
  if (std::exchange(entry.scheduled_, false)) std::erase(scheduled_, &queue_pair);
  if (std::exchange(entry.timed_, false)) std::erase(timed_, &queue_pair);
  // The queue pair may be in this list although it has acknowledged, because its socket had room again.
  std::erase(delayed_, &queue_pair);
  std::erase(blocked_, &queue_pair);
}

void Scheduler::release_delayed_acknowledgements() {
  if (delayed_.empty()) return;
  for (QueuePair* const queue_pair : delayed_) schedule(*queue_pair);
  delayed_.clear();
  delayed_timer_.disarm();
}

void Scheduler::run(Nanoseconds now) {
  while (!scheduled_.empty()) {
    QueuePair& queue_pair = *scheduled_.back();
    scheduled_.pop_back();
    queue_pair.scheduler_entry().scheduled_ = false;
    queue_pair.send_pending(now);
  }
}

void Scheduler::run_blocked(Nanoseconds now) {
  const std::vector<QueuePair*> unblocked = std::exchange(blocked_, {});
  for (QueuePair* const queue_pair : unblocked) queue_pair->send_pending(now);
}

void Scheduler::run_timers(Nanoseconds now) {
  // on_timer() may add to the list again, and may end other queue pairs' timers, but destroys no queue pair.
  const std::vector<QueuePair*> timed = std::exchange(timed_, {});
  for (QueuePair* const queue_pair : timed) queue_pair->scheduler_entry().timed_ = false;
  for (QueuePair* const queue_pair : timed) {
    if (now >= queue_pair->deadline()) queue_pair->on_timer(now);
    call_at(*queue_pair, queue_pair->deadline());
  }
}

Nanoseconds Scheduler::next_deadline() const { return std::min(timer_.deadline(), delayed_timer_.deadline()); }

}  // namespace plugfest::roce
