// Completion queues: rings of completions and their events.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "fabric/roce/memory/nic_lock.h"
#include "fabric/roce/qp/nic_context.h"
#include "fabric/system/clock.h"

namespace plugfest::roce {

/// Callbacks for events of a completion queue. They are called with locks of the NIC held and must not call the NIC.
struct CompletionQueueEvents {
  /// Called for a completion for which the queue was armed. The queue is disarmed before.
  void (*completion)(void* context) = nullptr;
  /// Called with IBV_EVENT_CQ_ERR when completions were lost because the ring was full.
  void (*async)(void* context, ibv_event_type event) = nullptr;
  void* context = nullptr;
};

/// A completion and when the NIC made it.
struct TimedCompletion {
  ibv_wc completion;
  /// 0 unless the queue was created with timestamps.
  Nanoseconds time_ns;
};

/// A ring of completions. Polling an empty queue makes the NIC receive packets.
///
/// Thread safety: every member from any thread.
class CompletionQueue {
 public:
  /// `capacity`: number of completions, at least 1. `events` may have null functions. `timestamps`: whether each
  /// completion gets a time, which costs a reading of the clock.
  CompletionQueue(const NicContext& nic, int capacity, CompletionQueueEvents events, bool timestamps = false);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  /// Takes up to `count` completions, oldest first. If there is none, receives packets and tries again. Returns their
  /// number, or -1 after an overflow or in a child process after fork.
  int poll(int count, ibv_wc* completions);

  /// Like poll() for one completion, with its time.
  int poll_one(TimedCompletion& taken);

  /// Arms the queue: the next completion (`solicited_only`: the next solicited or failed one) calls
  /// `events.completion` once. If the queue holds a completion that no event has announced, the call is made at once:
  /// UCX and other programs arm without polling again. Each event announces one completion, because perftest polls once
  /// per event. Returns 0, or EIO in a child process after fork.
  int request_notify(bool solicited_only);

  /// Changes the capacity. Returns 0, EINVAL if the queue holds more completions, or EIO in a child process after fork.
  int resize(int capacity);

  int capacity() const;

  // The engine calls the members below.

  /// Whether the program has ever called request_notify(). Such a program sleeps until an event comes, and may rely on
  /// the order of hardware: its request is acknowledged before it receives the reply.
  bool events_requested() const { return events_requested_.load(std::memory_order_relaxed); }

  /// Adds a completion. `solicited`: a receive completion for a solicited message.
  void push(const ibv_wc& completion, bool solicited);

  /// Removes the completions of a queue pair that is being destroyed or reset.
  void remove_completions(std::uint32_t queue_pair_number);

 private:
  enum class Armed : std::uint8_t { kNo, kSolicited, kAny };

  /// Calls `store` for up to `count` completions, oldest first, and returns their number.
  template <typename Store>
  int take(int count, Store store);
  template <typename Store>
  int poll_with(int count, Store store);
  void fire();  ///< disarms and calls `events.completion`; needs mutex_

  const NicContext nic_;
  const CompletionQueueEvents events_;
  const bool timestamps_;
  mutable std::mutex mutex_;
  LazyArray<TimedCompletion> ring_;      ///< guarded by mutex_
  std::size_t capacity_;                 ///< guarded by mutex_
  std::uint64_t first_ = 0;              ///< completions ever taken; guarded by mutex_
  std::uint64_t announced_ = 0;          ///< completions that had an event, counted as in `first_`; guarded by mutex_
  std::atomic<std::uint64_t> count_{0};  ///< completions waiting; written under mutex_
  Armed armed_ = Armed::kNo;             ///< guarded by mutex_
  std::atomic<bool> overflowed_{false};
  std::atomic<bool> events_requested_{false};
};

}  // namespace plugfest::roce
