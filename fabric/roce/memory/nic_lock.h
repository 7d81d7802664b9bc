// The lock of a NIC, and arrays whose memory the kernel allocates on first access.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>

#include "fabric/system/processor.h"

namespace plugfest::roce {

/// Guards the tables, queue pairs and sockets of one NIC. A thread that holds it may access registered memory; a memory
/// region is deregistered with the lock held. Completion queues and receive queues have locks of their own, which are
/// taken while this one is held.
///
/// Thread safety: every member from any thread. In a child process after fork only in_child() may be called.
class NicLock {
 public:
  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

  /// Takes the lock if it becomes free within some microseconds: most holders release it sooner than a thread could
  /// sleep and wake.
  std::unique_lock<NicLock> try_lock_briefly() {
    constexpr int kAttempts = 300;
    std::unique_lock lock(*this, std::defer_lock);
    for (int i = 0; i < kAttempts && !lock.try_lock(); ++i)
      for (int pause = 0; pause < 4; ++pause) spin_pause();
    return lock;
  }

  /// Takes the lock for a thread of the program that posts.
  std::unique_lock<NicLock> lock_to_post() {
    count_call();
    std::unique_lock lock = try_lock_briefly();
    if (!lock.owns_lock()) lock.lock();
    return lock;
  }

  bool held() {
    const std::unique_lock lock(*this, std::try_to_lock);
    return !lock.owns_lock();
  }

  /// A number that changes when the program polls or posts, and when a poll that received packets has ended.
  std::uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }
  void count_call() { calls_.fetch_add(1, std::memory_order_relaxed); }

  /// True in a child process after fork: the NIC belongs to the parent, and nothing else of it may be used.
  bool in_child() const { return in_child_.load(std::memory_order_relaxed); }
  void set_in_child() { in_child_.store(true); }

 private:
  std::mutex mutex_;
  std::atomic<bool> in_child_{false};
  std::atomic<std::uint64_t> calls_{0};
};

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

/// An array whose memory the kernel allocates on first access, for rings that are rarely full.
template <typename Element>
using LazyArray = std::unique_ptr<Element[], FreeMemory>;

/// Returns zeroed elements; null for a `count` of 0. Errors: std::bad_alloc.
template <typename Element>
LazyArray<Element> make_lazy_array(std::size_t count) {
  if (count == 0) return nullptr;
  void* const memory = std::calloc(count, sizeof(Element));
  if (memory == nullptr) throw std::bad_alloc();
  return LazyArray<Element>(static_cast<Element*>(memory));
}

}  // namespace plugfest::roce
