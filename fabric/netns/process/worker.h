// A thread that lives as long as its owner and runs what it is given, one after the other.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace plugfest::netns {

/// Thread safety: run() may be called from several threads.
class Worker {
 public:
  Worker();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Runs `function` on the thread, and returns when it has. Throws what it throws.
  void run(const std::function<void()>& function);

 private:
  struct Task;
  void work();

  std::mutex mutex_;
  std::condition_variable given_;
  std::condition_variable finished_;
  std::deque<Task*> tasks_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace plugfest::netns
