// Functions that run when the process forks or exits.
#pragma once

#include <chrono>
#include <mutex>

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

  /// Closes what a child process after fork shares with its parent.
  virtual void on_fork_in_child() = 0;

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

/// A mutex that a child process after fork finds unlocked, and what it guards consistent, whichever thread of the
/// parent held it. Meets the requirements of Lockable.
class ForkSafeMutex final : private ProcessHandlers {
 public:
  ForkSafeMutex() : fork_guard_(*this) {}

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  void on_exit() override {}
  // This thread may hold the lock, if a signal handler that interrupted the thread calls fork().
  void before_fork() override { locked_for_fork_ = mutex_.try_lock_for(std::chrono::milliseconds(500)); }
  void after_fork_in_parent() override {
    if (locked_for_fork_) mutex_.unlock();
  }
  void on_fork_in_child() override { after_fork_in_parent(); }

  std::timed_mutex mutex_;
  bool locked_for_fork_ = false;
  ForkGuard fork_guard_;  ///< last: a fork of another thread uses all of the above
};

}  // namespace plugfest
