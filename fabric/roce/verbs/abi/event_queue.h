// Events of completion channels and asynchronous events, and the wait until a program has acknowledged them.
#pragma once

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "fabric/system/file.h"

namespace plugfest::roce::verbs {

/// Counts the delivered events of an object. The number of acknowledged events, the mutex and the condition variable
/// are members of the object's ABI struct, where programs may access them.
class EventAcknowledgement {
 public:
  void count_delivered(pthread_mutex_t& mutex) {
    pthread_mutex_lock(&mutex);
    ++delivered_;
    pthread_mutex_unlock(&mutex);
  }

  static void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& changed, std::uint32_t& acknowledged,
                          std::uint32_t count) {
    pthread_mutex_lock(&mutex);
    acknowledged += count;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
  }

  /// Blocks until the program has acknowledged all delivered events.
  void wait(pthread_mutex_t& mutex, pthread_cond_t& changed, const std::uint32_t& acknowledged) {
    pthread_mutex_lock(&mutex);
    while (acknowledged != delivered_) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
  }

 private:
  std::uint32_t delivered_ = 0;
};

/// A first-in-first-out queue of events. The descriptor is readable while the queue has events. The program may set
/// O_NONBLOCK on it, poll it and add it to an epoll set; only take() reads it.
///
/// After fork() the child shares the descriptor with its parent, so the child's copy does not read or write it.
///
/// Thread safety: any thread; close() at most once.
template <typename Event>
class EventQueue {
 public:
  /// Errors: std::system_error if no descriptor is available.
  EventQueue() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)) {
    if (descriptor_ < 0) throw_errno("create an event descriptor");
  }
  ~EventQueue() { close(); }
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  int descriptor() const { return descriptor_; }

  void add(const Event& event) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    events_.push_back(event);
    signal(1);
  }

  /// Removes the oldest event. Blocks while the queue is empty, unless the descriptor is O_NONBLOCK. Calls
  /// `on_taken(event)` under the queue's lock, so that remove_if() never runs between removal and `on_taken`.
  /// Returns 0, or -1 with errno: EAGAIN, EINTR, or EBADF if the queue was closed.
  template <typename OnTaken>
  int take(Event& event, OnTaken on_taken) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) {
        errno = EBADF;
        return -1;
      }
      ++waiters_;
    }
    int error = EAGAIN;
    bool taken = false;
    for (bool waiting = true; waiting;) {
      std::uint64_t count = 0;
      if (read(descriptor_, &count, sizeof(count)) != static_cast<ssize_t>(sizeof(count))) {
        error = errno;
        break;
      }
      const std::lock_guard lock(mutex_);
      if (closed_) {
        error = EBADF;
        waiting = false;
      } else if (!events_.empty()) {  // empty: remove_if() removed the signaled event
        event = events_.front();
        events_.pop_front();
        on_taken(event);
        taken = true;
        waiting = false;
      }
    }
    const std::lock_guard lock(mutex_);
    --waiters_;
    waiter_left_.notify_all();
    if (taken) return 0;
    errno = error;
    return -1;
  }

  /// Removes matching events, so that the program gets no event of a destroyed object.
  template <typename Predicate>
  void remove_if(Predicate matches) {
    const std::lock_guard lock(mutex_);
    const std::size_t removed = std::erase_if(events_, matches);
    for (std::size_t i = 0; i < removed && !in_child(); ++i) {
      // A concurrent take() may have read the count already: RWF_NOWAIT avoids blocking. Kernels without RWF_NOWAIT
      // leave the descriptor readable once too often, which take() tolerates.
      std::uint64_t count = 0;
      const iovec part = {&count, sizeof(count)};
      if (preadv2(descriptor_, &part, 1, -1, RWF_NOWAIT) < 0) break;
    }
  }

  /// Wakes all threads blocked in take(), waits until they have returned, and closes the descriptor.
  void close() {
    std::unique_lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    events_.clear();
    if (!in_child()) {
      signal(kWakeAllWaiters);
      waiter_left_.wait(lock, [this] { return waiters_ == 0; });
    }
    ::close(descriptor_);
  }

 private:
  static constexpr std::uint64_t kWakeAllWaiters = 1u << 30;

  void signal(std::uint64_t count) {
    // Can only fail with 2^64 pending events.
    [[maybe_unused]] const ssize_t written = write(descriptor_, &count, sizeof(count));
  }

  bool in_child() const { return getpid() != owner_; }

  std::mutex mutex_;
  std::condition_variable waiter_left_;
  std::deque<Event> events_;
  int waiters_ = 0;
  bool closed_ = false;
  const int descriptor_;
  const pid_t owner_ = getpid();
};

}  // namespace plugfest::roce::verbs
