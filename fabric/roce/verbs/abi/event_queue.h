// Events of completion channels and asynchronous events, and the wait until a program has acknowledged them.
#pragma once

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

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
/// Thread safety: any thread; close() at most once. A thread may be canceled while it waits in take(), and nowhere
/// else.
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
  /// Returns 0, or -1 with errno: EAGAIN, EINTR, EBADF if the queue was closed, or EIO in a child after fork().
  template <typename OnTaken>
  int take(Event& event, OnTaken on_taken) {
    const int error = in_child() ? EIO : take_or_error(event, on_taken);
    if (error == 0) return 0;
    errno = error;
    return -1;
  }

  /// Removes matching events, so that the program gets no event of a destroyed object. Not in a child after fork(): a
  /// thread of the parent may have held the lock.
  template <typename Predicate>
  void remove_if(Predicate matches) {
    const std::lock_guard lock(mutex_);
    const std::size_t removed = std::erase_if(events_, matches);
    for (std::size_t i = 0; i < removed; ++i) {
      // A concurrent take() may have read the count already: RWF_NOWAIT avoids blocking. Kernels without RWF_NOWAIT
      // leave the descriptor readable once too often, which take() tolerates.
      std::uint64_t count = 0;
      const iovec part = {&count, sizeof(count)};
      if (preadv2(descriptor_, &part, 1, -1, RWF_NOWAIT) < 0) break;
    }
  }

  /// Wakes all threads blocked in take(), waits until they have returned, and closes the descriptor.
  void close() {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (!in_child()) lock.lock();
    if (std::exchange(closed_, true)) return;
    if (!in_child()) {
      events_.clear();
      signal(kWakeAllWaiters);
      waiter_left_.wait(lock, [this] { return waiters_ == 0; });
    }
    ::close(descriptor_);
  }

 private:
  static constexpr std::uint64_t kWakeAllWaiters = 1u << 30;

  /// A thread in take(). The destructor also runs if the thread is canceled.
  class Waiter {
   public:
    explicit Waiter(EventQueue& queue) : queue_(queue) {
      const std::lock_guard lock(queue_.mutex_);
      ++queue_.waiters_;
    }
    ~Waiter() {
      const std::lock_guard lock(queue_.mutex_);
      --queue_.waiters_;
      queue_.waiter_left_.notify_all();
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    EventQueue& queue_;
  };

  template <typename OnTaken>
  int take_or_error(Event& event, OnTaken on_taken) {
    const Waiter waiter(*this);
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return EBADF;
    }
    while (true) {
      std::uint64_t count = 0;
      if (read(descriptor_, &count, sizeof(count)) != static_cast<ssize_t>(sizeof(count))) return errno;
      const std::lock_guard lock(mutex_);
      if (closed_) return EBADF;
      if (events_.empty()) continue;  // remove_if() has removed the signaled event
      event = events_.front();
      events_.pop_front();
      on_taken(event);
      return 0;
    }
  }

  // Not write(), which is a cancellation point: threads of the program call add() with locks held.
  void signal(std::uint64_t count) {
    // Can only fail with 2^64 pending events.
    [[maybe_unused]] const long written = syscall(SYS_write, descriptor_, &count, sizeof(count));
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
