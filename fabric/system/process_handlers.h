// Functions that run when the process forks or exits.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "fabric/system/wait.h"

namespace plugfest {

/// The functions of an object that run when its process forks or exits. As with pthread_atfork, before_fork() is called
/// in the reverse order of construction, so that an object that uses an older one locks first.
class ProcessHandlers {
 public:
  /// The process may exit without the object's destructor.
  virtual void on_exit() = 0;

  /// Surround a fork in the parent: the child must not inherit an object that another thread is changing.
  virtual void before_fork() = 0;
  virtual void after_fork_in_parent() = 0;

  /// Called in the child: ends what it must not share with its parent. Returns false if no function of this object is
  /// to be called in the child again.
  virtual bool on_fork_in_child() = 0;

 protected:
  ~ProcessHandlers() = default;
};

/// While the object exists, calls the functions for forks when this process forks, and on_exit() when it calls exit().
/// Thread safety: any thread.
class ForkGuard {
 public:
  explicit ForkGuard(ProcessHandlers& handlers);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  ProcessHandlers& handlers_;
};

/// Takes a lock before a fork, or before the process exits. False if that takes long: this thread may hold the lock, if
/// a signal handler that interrupted the thread calls fork() or exit().
template <typename Lock>
bool lock_for_fork(Lock& lock) {
  // Not try_lock_for(): the TSan of GCC 12 does not see the call of the C library below it.
  return wait_until([&] { return lock.try_lock(); }, std::chrono::milliseconds(200), std::chrono::microseconds(50));
}

/// Makes the process call the functions of all ForkGuards from now on. A lock under which objects with a ForkGuard are
/// created has to be taken before them at a fork: its handlers are registered with pthread_atfork after this call.
void register_fork_handlers();

/// A mutex that a child process after fork finds unlocked, and what it guards consistent, whichever thread of the
/// parent held it. Meets the requirements of Lockable.
class ForkSafeMutex final : private ProcessHandlers {
 public:
  ForkSafeMutex() : fork_guard_(*this) {}

  void lock() {
    // A thread that releases the lock and takes it again would often be faster than a fork that polls.
    while (fork_waits_) std::this_thread::yield();
    mutex_.lock();
  }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  void on_exit() override {}
  void before_fork() override {
    fork_waits_ = true;
    locked_for_fork_ = lock_for_fork(mutex_);
    fork_waits_ = false;
  }
  void after_fork_in_parent() override {
    if (locked_for_fork_) mutex_.unlock();
  }
  bool on_fork_in_child() override {
    after_fork_in_parent();
    return true;
  }

  std::mutex mutex_;
  std::atomic<bool> fork_waits_ = false;
  bool locked_for_fork_ = false;
  ForkGuard fork_guard_;  ///< last: a fork of another thread uses all of the above
};

}  // namespace plugfest
