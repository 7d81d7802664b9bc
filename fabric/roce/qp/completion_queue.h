// A completion queue: a ring of completions, polling that drives the NIC, and notification.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "fabric/roce/qp/lazy_array.h"
#include "fabric/roce/qp/nic_context.h"

namespace plugfest::roce {

/// How the engine tells the verbs front about events. A plain function, called with locks of the engine held: it must
/// not call the engine back.
struct CompletionQueueEvents {
  /// An armed completion queue got a completion that it was armed for; it is disarmed now.
  void (*completion)(void* context) = nullptr;
  /// IBV_EVENT_CQ_ERR: completions were lost because the ring was full.
  void (*async)(void* context, ibv_event_type event) = nullptr;
  void* context = nullptr;
};

/// Thread safety: every member from any thread.
class CompletionQueue {
 public:
  /// `capacity`: completions that fit, at least 1. `events` may have null functions.
  CompletionQueue(const NicContext& nic, int capacity, CompletionQueueEvents events);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  /// Takes up to `count` completions, oldest first. If there is none, receives packets first. Returns how many, or -1
  /// once the queue has overflowed or in a child process after fork.
  int poll(int count, ibv_wc* completions);

  /// Arms the queue: the next completion (`solicited_only`: the next solicited or failed one) calls
  /// `events.completion` once. A completion that is in the queue already does not count, as verbs has it. Returns 0.
  int request_notify(bool solicited_only);

  /// Makes room for `capacity` completions. Returns 0, or EINVAL if more than that are waiting.
  int resize(int capacity);

  int capacity() const;

  // --- for the engine ---

  /// Whether the program has ever asked for an event: then it sleeps until one comes, and it may rely on the order in
  /// which hardware completes things: that what it sent is acknowledged before it hears the answer.
  bool events_requested() const { return waited_for_.load(std::memory_order_relaxed); }

  /// Adds a completion. `solicited` concerns receive completions.
  void push(const ibv_wc& completion, bool solicited);

  /// Removes the completions of a queue pair that is being destroyed.
  void remove_completions(std::uint32_t queue_pair_number);

 private:
  enum class Armed : std::uint8_t { kNo, kSolicited, kAny };

  int take(int count, ibv_wc* completions);

  const NicContext nic_;
  const CompletionQueueEvents events_;
  mutable std::mutex mutex_;
  LazyArray<ibv_wc> ring_;               ///< guarded by mutex_
  std::size_t capacity_;                 ///< guarded by mutex_
  std::uint64_t first_ = 0;              ///< completions ever taken; guarded by mutex_
  std::atomic<std::uint64_t> count_{0};  ///< completions waiting; written under mutex_
  Armed armed_ = Armed::kNo;             ///< guarded by mutex_
  std::atomic<bool> overflowed_{false};
  std::atomic<bool> waited_for_{false};
};

}  // namespace plugfest::roce
