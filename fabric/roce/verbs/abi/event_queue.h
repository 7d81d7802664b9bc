// A queue of events with a file descriptor that programs may poll: the inside of completion channels and of async
// events.
#pragma once

#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <system_error>

namespace plugfest::roce::verbs {

/// Events in order. The descriptor is readable while there is one; it belongs to the program too, which may set
/// O_NONBLOCK on it, poll it, or put it into an epoll set, but leaves reading to take().
///
/// After fork the child's copy shares the descriptor with the parent: there, nothing is read from it or written to it.
///
/// Thread safety: everything may be called from any thread; close() once.
template <typename Event>
class EventQueue {
 public:
  /// Errors: std::system_error if no descriptor is to be had.
  EventQueue() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)) {
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  ~EventQueue() { close(); }
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  int descriptor() const { return descriptor_; }

  void add(const Event& event) {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    events_.push_back(event);
    announce(1);
  }

  /// Takes the oldest event. Blocks until there is one, unless the descriptor is O_NONBLOCK. `on_taken(event)` runs
  /// under the queue's lock, so that drop() finds an event either in the queue or fully taken. Returns 0, or -1 with
  /// errno: EAGAIN, EINTR, or EBADF when the queue was closed meanwhile.
  template <typename OnTaken>
  int take(Event& event, OnTaken on_taken) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) {
        errno = EBADF;
        return -1;
      }
      ++takers_;
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
      } else if (!events_.empty()) {  // empty: the event was dropped after it had been announced
        event = events_.front();
        events_.pop_front();
        on_taken(event);
        taken = true;
        waiting = false;
      }
    }
    const std::lock_guard lock(mutex_);
    --takers_;
    taker_left_.notify_all();
    if (taken) return 0;
    errno = error;
    return -1;
  }

  /// Removes events that match; programs must not see an object after they destroyed it.
  template <typename Predicate>
  void drop(Predicate matches) {
    const std::lock_guard lock(mutex_);
    const std::size_t dropped = std::erase_if(events_, matches);
    for (std::size_t i = 0; i < dropped && !in_child(); ++i) {
      // Without RWF_NOWAIT a taker that was quicker would leave this thread blocked. If the kernel lacks it, the
      // descriptor stays readable once too often, and take() sees to that.
      std::uint64_t count = 0;
      const iovec part = {&count, sizeof(count)};
      if (preadv2(descriptor_, &part, 1, -1, RWF_NOWAIT) < 0) break;
    }
  }

  /// Wakes every thread that is blocked in take(), waits until they have left, closes the descriptor.
  void close() {
    std::unique_lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    events_.clear();
    if (!in_child()) {
      announce(kEnoughForEveryTaker);
      taker_left_.wait(lock, [this] { return takers_ == 0; });
    }
    ::close(descriptor_);
  }

 private:
  static constexpr std::uint64_t kEnoughForEveryTaker = 1u << 30;

  void announce(std::uint64_t count) {
    // Fails only when 2^64 events wait.
    [[maybe_unused]] const ssize_t written = write(descriptor_, &count, sizeof(count));
  }

  bool in_child() const { return getpid() != owner_; }

  std::mutex mutex_;
  std::condition_variable taker_left_;
  std::deque<Event> events_;
  int takers_ = 0;
  bool closed_ = false;
  const int descriptor_;
  const pid_t owner_ = getpid();
};

}  // namespace plugfest::roce::verbs
