// A thread that runs functions for other threads.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace plugfest::netns {

/// Owns a thread. Thread safety: run() may be called from several threads.
class Worker {
 public:
  Worker();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Runs `function` on the thread and waits until it has returned. Throws what the function throws.
  void run(const std::function<void()>& function);

 private:
  struct Task;
  void work();

  std::mutex mutex_;
  std::condition_variable task_added_;
  std::condition_variable task_finished_;
  std::deque<Task*> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace plugfest::netns
